"""A stock llama-server, single and as a router, by its answers."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.stub_servers.base import FakeServer, Json

IDLE_SLOT: Json = {"id": 0, "n_ctx": 65536, "speculative": False, "is_processing": False}
OFF_SLOTS: Json = {
    "error": {
        "code": 501,
        "message": "This server does not support slots endpoint. Start it with `--slots`",
        "type": "not_supported_error",
    }
}
OFF_METRICS: Json = {
    "error": {
        "code": 501,
        "message": "This server does not support metrics endpoint. Start it with `--metrics`",
        "type": "not_supported_error",
    }
}
NO_MODEL: Json = {"error": {"code": 400, "message": "model name is missing from the request", "type": "invalid_request_error"}}
NOT_LOADED: Json = {"error": {"code": 400, "message": "model is not loaded", "type": "invalid_request_error"}}


def busy_slot(slot: int = 0, task: int = 135, **changes: Any) -> Json:
    """A slot at work as present builds report it: 1,000 prompt tokens of which 200 were cached, one token generated."""
    token = {"has_next_token": True, "has_new_line": False, "n_remain": -1, "n_decoded": changes.pop("n_decoded", 1)}
    shown = {
        "id": slot,
        "n_ctx": 65536,
        "speculative": False,
        "is_processing": True,
        "id_task": task,
        "n_prompt_tokens": 1000,
        "n_prompt_tokens_processed": 800,
        "n_prompt_tokens_cache": 200,
        "next_token": [token],
    }
    return shown | changes


@dataclass
class FakeLlamaServer(FakeServer):
    """A stock llama-server by its answers. It sleeps when its slots were not asked for during `sleep_after_s`."""

    slots: list[Json] = field(default_factory=lambda: [IDLE_SLOT])
    props: Json = field(
        default_factory=lambda: {
            "total_slots": 1,
            "model_path": "/models/tiny.gguf",
            "build_info": "b11549-abc",
            "default_generation_settings": {"n_ctx": 65536},
            "is_sleeping": False,
        }
    )
    slots_off: bool = False
    metrics: str | None = None
    process_start: str = ""
    slots_answer: tuple[int, Any] | None = None
    sleep_after_s: float | None = None
    metrics_are_use: bool = False
    used_at: float = field(default_factory=time.monotonic)
    woken: int = 0

    def routes(self) -> list[Route]:
        paths = {"/health": self._health, "/props": self._props, "/slots": self._slots, "/metrics": self._metrics}
        return [Route(path, handler) for path, handler in paths.items()]

    @property
    def sleeping(self) -> bool:
        return self.sleep_after_s is not None and time.monotonic() - self.used_at > self.sleep_after_s

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or JSONResponse({"status": "ok"})

    async def _props(self, request: Request) -> Response:
        return await self.enter(request) or JSONResponse({**self.props, "is_sleeping": self.sleeping})

    async def _slots(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        self.woken += self.sleeping
        self.used_at = time.monotonic()
        if self.slots_answer is not None:
            return Response(json.dumps(self.slots_answer[1]), self.slots_answer[0], media_type="application/json")
        return JSONResponse(OFF_SLOTS, 501) if self.slots_off else JSONResponse(self.slots)

    async def _metrics(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        if self.metrics is None:
            return JSONResponse(OFF_METRICS, 501)
        if self.metrics_are_use:
            self.woken += self.sleeping
            self.used_at = time.monotonic()
        headers = {"Process-Start-Time-Unix": self.process_start} if self.process_start else {}
        return Response(self.metrics, media_type="text/plain", headers=headers)


@dataclass
class FakeRouter(FakeServer):
    """A llama-server that routes: each model is a FakeLlamaServer of its own, asked by `?model=`.

    `status` is what /models says of each; a question to one that is unloaded loads it unless `autoload=false`, and one to a
    sleeping model wakes it whatever it says, as the real one does. `woken` holds the names of those.
    """

    models: dict[str, FakeLlamaServer] = field(default_factory=dict)
    status: dict[str, Json] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def routes(self) -> list[Route]:
        asked = [Route(path, self._proxied) for path in ("/props", "/slots", "/metrics")]
        return [Route("/health", self._health), Route("/models", self._models), *asked]

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or JSONResponse({"status": "ok"})

    async def _models(self, request: Request) -> Response:
        data = [{"id": name, "object": "model", "status": {"args": [], **self.status[name]}} for name in self.models]
        return await self.enter(request) or JSONResponse({"data": data, "object": "list"})

    async def _proxied(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        name, path = request.query_params.get("model", ""), request.url.path
        if not name:
            own = {"role": "router", "model_path": "none", "build_info": "b11549-abc"}
            return JSONResponse(own) if path == "/props" else JSONResponse(NO_MODEL, 400)
        self.asked[name, path] += 1
        value = self.status[name]["value"]
        if value == "unloaded" and request.query_params.get("autoload") == "false":
            return JSONResponse(NOT_LOADED, 400)
        if value != "loaded" and path != "/props":
            self.woken.append(name)
            self.status[name] = {"value": "loaded"}
        answers = {"/props": self.models[name]._props, "/slots": self.models[name]._slots, "/metrics": self.models[name]._metrics}
        return await answers[path](request)
