"""Inference servers that answer what a test tells them to, over real sockets, with uvicorn in a thread.

with running(FakeLlamaServer()) as server:
    server.slots = [...]
    server.url
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

type Json = dict[str, Any]

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
LOADING: Json = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
BAD_KEY: Json = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}


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
class FakeServer(ABC):
    """Counts requests and how many are pending at once. `hold` keeps answers of a path back until it is cleared."""

    api_key: str = ""
    loading: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    keys: list[str | None] = field(default_factory=list)
    pending: int = 0
    most_pending: int = 0
    times: list[float] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    url: str = ""

    @abstractmethod
    def routes(self) -> list[Route]: ...

    def app(self) -> Starlette:
        return Starlette(routes=[*self.routes(), Route("/{rest:path}", self._unknown)])

    async def _unknown(self, request: Request) -> Response:
        error = {"code": 404, "message": "File Not Found", "type": "not_found_error"}
        return await self.enter(request) or JSONResponse({"error": error}, 404)

    async def enter(self, request: Request, *, public: bool = False) -> Response | None:
        """Notes the request; an answer when it gets no further."""
        self.seen[request.url.path] += 1
        self.times.append(time.monotonic())
        self.keys.append(request.headers.get("authorization"))
        self.pending += 1
        self.most_pending = max(self.most_pending, self.pending)
        try:
            while request.url.path in self.held:
                await asyncio.sleep(0.01)
        finally:
            self.pending -= 1
        if self.loading:
            return JSONResponse(LOADING, 503)
        if self.api_key and not public and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse(BAD_KEY, 401)
        return None


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


NO_MODEL: Json = {"error": {"code": 400, "message": "model name is missing from the request", "type": "invalid_request_error"}}
NOT_LOADED: Json = {"error": {"code": 400, "message": "model is not loaded", "type": "invalid_request_error"}}


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


VLLM_METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 3.0
vllm:num_requests_running{engine="1",model_name="qwen"} 0.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 2.0
vllm:num_requests_waiting{engine="1",model_name="qwen"} 0.0
vllm:engine_sleep_state{engine="0",model_name="qwen",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="1",model_name="qwen",sleep_state="awake"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.42
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="qwen"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="qwen"} 600.0
vllm:prompt_tokens_total{engine="0",model_name="qwen"} 5000.0
vllm:prompt_tokens_total{engine="1",model_name="qwen"} 100.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 900.0
vllm:generation_tokens_total{engine="1",model_name="qwen"} 40.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="qwen"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="qwen"} 8.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="qwen"} 9.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 10.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="qwen"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="qwen"} 9.5
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="qwen"} 50.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="qwen"} 90.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 90.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
process_start_time_seconds 1000.5
"""


@dataclass
class FakeVllm(FakeServer):
    """A vLLM by its answers. Its key guards /v1 alone, as the real one's does; `metrics` None: no such path."""

    metrics: str | None = VLLM_METRICS
    health_status: int = 200
    model: str = "qwen"

    def routes(self) -> list[Route]:
        paths = {"/health": self._health, "/metrics": self._metrics, "/version": self._version, "/v1/models": self._models}
        return [Route(path, handler) for path, handler in paths.items()]

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or Response(status_code=self.health_status)

    async def _version(self, request: Request) -> Response:
        return await self.enter(request, public=True) or JSONResponse({"version": "0.32.0"})

    async def _models(self, request: Request) -> Response:
        data = [{"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": 32768}]
        return await self.enter(request) or JSONResponse({"object": "list", "data": data})

    async def _metrics(self, request: Request) -> Response:
        if (refusal := await self.enter(request, public=True)) is not None:
            return refusal
        return Response(status_code=404) if self.metrics is None else Response(self.metrics, media_type="text/plain")


POLICY_FIELDS: Json = {
    "prefill_order": {
        "values": ["physical", "rotating"],
        "default": "physical",
        "meaning": "In which order slots are visited.",
        "takes_effect": "next iteration",
    }
}


def engine_slot(slot: int = 0, **changes: Any) -> Json:
    """An idle slot as the engine reports it."""
    counts = dict.fromkeys(("n_prompt", "n_cached", "n_processed", "n_generated", "n_tokens"), 0)
    times = dict.fromkeys(("submitted_at", "first_visit_at", "prompt_done_at", "first_token_at"))
    shown = {"id": slot, "state": "idle", "since": 1.0, "task": None, "client": "", "group": "", "n_ctx": 4096, "n_predict": None}
    return shown | counts | times | {"member": False, "waiting_for": "", "last_service_iteration": None} | changes


def iteration(
    i: int, t: float, *, prompt: list[list[int]] | None = None, gen: list[list[int]] | None = None, ms: float = 100.0
) -> Json:
    """One iteration that ran for `ms`."""
    times = {"i": i, "t": t, "plan_ms": 0.0, "run_ms": ms, "settle_ms": 0.0}
    work = {"prompt": prompt or [], "gen": gen or [], "skipped": [], "held": []}
    return (
        times
        | work
        | {
            "phase": "continuous",
            "cohort": None,
            "sealed": False,
            "anchor": 0,
            "cursor": 0,
            "policy": 1,
            "queue": 0,
            "error": "",
        }
    )


@dataclass
class FakeEngine(FakeServer):
    """The engine's control surface by its answers. `tell` sends an update to whoever follows the events."""

    slots: list[Json] = field(default_factory=lambda: [engine_slot(0), engine_slot(1)])
    version: int = 1
    requested: Json = field(default_factory=lambda: {"prefill_order": "physical"})
    reason: str = ""
    started_at: float = 1000.0
    changed_at: float = field(default_factory=time.time)
    iterations: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)
    patch_answer: tuple[int, Any] | None = None
    ignore_patches: bool = False
    resumed_after: list[str | None] = field(default_factory=list)
    updates: int = 0
    raw_updates: list[bytes] = field(default_factory=list)

    def routes(self) -> list[Route]:
        return [
            Route("/health", self._health),
            Route("/scheduler", self._scheduler),
            Route("/scheduler/policy", self._patch, methods=["PATCH"]),
            Route("/scheduler/events", self._events),
        ]

    def policy(self) -> Json:
        shown = {"version": self.version, "requested": self.requested, "effective": self.requested, "reasons": {}}
        deadline = {"effective_from_iteration": self.last, "changed_at": self.changed_at, "reverts_at": None, "reverts_to": None}
        return shown | deadline | {"reason": self.reason}

    @property
    def last(self) -> int:
        return int(self.iterations[-1]["i"]) if self.iterations else 0

    def state(self) -> Json:
        counts = {"n_slots": len(self.slots), "n_ctx": 8192, "n_ctx_slot": 4096, "n_batch": 2048, "n_ubatch": 512, "n_threads": 1}
        return {
            "server": {"name": "tiny", "backend": "simulated", "build": "stub", "started_at": self.started_at} | counts,
            "t": time.time(),
            "iteration": self.last,
            "policy": self.policy(),
            "kv": {"mode": "split", "resolved_from": "flag", "used": 0, "size": 8192},
            "phase": {"name": "idle", "sealed": False, "cohort": None},
            "cursor": 0,
            "anchor": 0,
            "queue": {"depth": 0, "oldest_s": None},
            "totals": {"prompt_tokens": 0, "generated_tokens": 0},
            "slots": self.slots,
        }

    def tell(self) -> None:
        self.updates += 1

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or JSONResponse({"status": "ok"})

    async def _scheduler(self, request: Request) -> Response:
        capabilities = {"policy": POLICY_FIELDS, "ttl": True, "events": True}
        return await self.enter(request) or JSONResponse({**self.state(), "capabilities": capabilities})

    async def _patch(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        body = await request.json()
        if self.patch_answer is not None:
            return JSONResponse(self.patch_answer[1], self.patch_answer[0])
        if body["expected_version"] != self.version:
            error = {"code": 409, "message": "The policy is at another version.", "policy": self.policy()}
            return JSONResponse({"error": error}, 409)
        if "dry_run" in request.query_params or self.ignore_patches:
            return JSONResponse(self.policy() | {"requested": self.requested | body["set"]})
        self.version, self.changed_at = self.version + 1, time.time()
        self.requested = self.requested | body["set"]
        self.reason = body["reason"]
        self.tell()
        return JSONResponse(self.policy())

    async def _events(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        self.resumed_after.append(request.headers.get("last-event-id"))
        return StreamingResponse(self._stream(int(request.headers.get("last-event-id") or 0)), media_type="text/event-stream")

    async def _stream(self, after: int) -> AsyncIterator[bytes]:
        told = -1
        while True:
            while self.raw_updates:
                yield self.raw_updates.pop(0)
            if told != self.updates:
                told = self.updates
                fresh = [each for each in self.iterations if each["i"] > after]
                after = max(after, self.last)
                data = json.dumps({"gap": False, "state": self.state(), "iterations": fresh, "tasks": self.tasks})
                yield f"event: update\nid: {after}\ndata: {data}\n\n".encode()
            await asyncio.sleep(0.02)


@dataclass
class FakeRedirect(FakeServer):
    """Sends whoever asks for anything to the same path elsewhere."""

    elsewhere: str = ""

    def routes(self) -> list[Route]:
        return [Route("/{rest:path}", self._redirect)]

    async def _redirect(self, request: Request) -> Response:
        await self.enter(request)
        return RedirectResponse(self.elsewhere + request.url.path)


class _Thread:
    """One uvicorn in a thread, on a port that was bound first."""

    def __init__(self, server: FakeServer, port: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        server.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(server.app(), log_level="error", lifespan="off", timeout_graceful_shutdown=0)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def start(self) -> None:
        self.thread.start()
        while not self.server.started and self.thread.is_alive():
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(5)
        self.socket.close()


@contextmanager
def running[S: FakeServer](server: S, port: int = 0) -> Iterator[S]:
    thread = _Thread(server, port)
    thread.start()
    try:
        yield server
    finally:
        thread.stop()


def unused_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
