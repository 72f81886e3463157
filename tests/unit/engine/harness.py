"""The engine's HTTP side in one process: the ASGI app, a real runner, and the cost model at no cost as its backend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from engine.backends.base import Backend, BackendOptions, ModelInfo
from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import RealClock
from engine.http.app import create_app
from engine.http.server import make_scheduler
from engine.http.state import ServerState
from engine.options import Options, parse_options
from engine.runner import Runner
from engine.scheduler.plan import Outcome, Plan

FREE = CostModel(alpha=0.0, beta=0.0, batch=0.0, decode=0.0)
FLAGS = ("-np", "2", "-c", "512", "--no-kv-unified", "--backend", "simulated", "--metrics")


def free_backend(options: Options) -> SimulatedBackend:
    return SimulatedBackend(options.backend_options, FREE, RealClock())


class FakeBackend:
    """The free backend behind a gate. `fault` is raised once, by the next batch for which `faults_when` is true."""

    def __init__(self, options: BackendOptions) -> None:
        self._inner = SimulatedBackend(options, FREE, RealClock())
        self.info: ModelInfo = self._inner.info
        self.fault: BaseException | None = None
        self.faults_when: Callable[[Plan], bool] = lambda plan: True
        self.open = threading.Event()
        self.open.set()
        self.running = threading.Event()
        self.cleared: list[int] = []

    def run(self, plan: Plan) -> Outcome:
        self.running.set()
        assert self.open.wait(20), "nobody opened the gate"
        if self.fault is not None and self.faults_when(plan):
            fault, self.fault = self.fault, None
            raise fault
        return self._inner.run(plan)

    def clear(self, slot: int) -> None:
        self.cleared.append(slot)
        self._inner.clear(slot)

    def save(self, slot: int, tokens: Any, path: Path) -> None:
        self._inner.save(slot, tokens, path)

    def restore(self, slot: int, path: Path) -> list[int]:
        return self._inner.restore(slot, path)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
        return self._inner.tokenize(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: Any) -> str:
        return self._inner.detokenize(tokens)

    def piece(self, token: int) -> bytes:
        return self._inner.piece(token)

    def check_grammar(self, grammar: str) -> None:
        self._inner.check_grammar(grammar)

    def schema_grammar(self, schema: Any) -> str:
        return self._inner.schema_grammar(schema)

    def close(self) -> None:
        self._inner.close()


class Served:
    """What a test holds of a running app."""

    def __init__(self, state: ServerState, runner: Runner, client: httpx2.AsyncClient) -> None:
        self.state, self.runner, self.client = state, runner, client

    async def post(self, path: str, body: Any) -> httpx2.Response:
        return await self.client.post(path, json=body)

    async def idle(self) -> None:
        """Until no slot works; a second at most."""
        for _ in range(200):
            if all(slot["task"] is None for slot in self.runner.view()["slots"]):
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"slots are still busy: {self.runner.view()['slots']}")


@asynccontextmanager
async def served(*flags: str, backend: Backend | None = None) -> AsyncIterator[Served]:
    options = parse_options([*FLAGS, *flags], {})
    clock = RealClock()
    state = ServerState(options, clock, started_at=clock.now())
    backend = backend or free_backend(options)
    scheduler, loop = make_scheduler(options, backend, clock.now()), asyncio.get_running_loop()
    runner = Runner(scheduler, backend, clock, loop, queue_limit=options.queue_limit)
    runner.start()
    state.ready(runner)
    transport = httpx2.ASGITransport(app=create_app(state))
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://engine") as client:
            yield Served(state, runner, client)
    finally:
        assert await asyncio.to_thread(runner.stop, 5)
