"""The engine's control surface by its answers, and its slots and iterations as it tells of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.stub_servers.base import FakeServer, Json

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
