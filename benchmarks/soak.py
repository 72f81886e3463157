"""Ten thousand requests of every kind against one warm server, a third of them left by their clients: does anything stay behind?

`python -m benchmarks.soak` runs the real HTTP server on the simulated backend at no cost (`--backend llama`: on the small model,
with fewer requests). Requests come from clients that work at once: whole and streamed answers, several prompts or answers in
one, slots by name, waits with a limit; policies switch meanwhile, and the queue is short. The last line is JSON:

`requests`, with as many to warm up as are counted; `answered`, `refused` (503), `left` (by their clients) and `other` outcomes
(target 0); `busy_slots` and `queued` at the end (0); `rss_warm_mb` and `rss_end_mb`, resident memory of the server after half of
the requests, when its rings of past iterations and tasks are full, and after all of them; `rss_growth`, their ratio less 1 (at
most 0.05); `drain_s`, the time from SIGTERM to the end with a limit of 30 seconds (under 3: it waits for no task); `exit_code`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Client, finish, free_port, table, wait_healthy
from engine.__main__ import main as engine_main
from engine.backends.base import Backend
from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import RealClock
from engine.http.server import load_backend
from engine.options import Options

REQUESTS = {"simulated": 20_000, "llama": 1_500}
CLIENTS = {"simulated": 24, "llama": 16}
STAY_S = {"simulated": 0.01, "llama": 0.2}  # mean time after which a client leaves, if it does
SLOTS = 6
CONTEXT = 1024  # of each slot
FLAGS = (
    "-np",
    str(SLOTS),
    "-c",
    str(SLOTS * CONTEXT),
    "--queue-limit",
    "12",
    "--drain-timeout",
    "30",
    "-lv",
    "1",
    "-b",
    "256",
    "-t",
    "1",
)
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
POLICIES: tuple[dict[str, object], ...] = (
    {"prefill_order": "physical", "phase": "continuous", "prefill_chunk": None},
    {"prefill_order": "rotating", "phase": "continuous", "prefill_chunk": 16},
    {"prefill_order": "fair", "phase": "barrier", "barrier_max_hold_ms": 50},
    {"prefill_order": "shortest_first", "phase": "continuous", "decode_share": 0.5},
    {"phase": "barrier", "barrier_max_generation_tokens": 4, "barrier_join": "window", "barrier_join_window_ms": 20},
)


@dataclass
class Soak:
    """One run: what is left to send, what came back, and the server's memory at each tenth."""

    port: int
    pid: int
    backend: str
    n_requests: int
    seed: int = 1
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    rss_mb: list[float] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        await asyncio.gather(*(self._client(random.Random(self.seed * 1000 + n)) for n in range(CLIENTS[self.backend])))
        return await self._quiet()

    async def _client(self, rng: random.Random) -> None:
        while self.sent < self.n_requests:
            self.sent += 1
            if self.sent % max(1, self.n_requests // 10) == 0:
                self.rss_mb.append(rss_mb(self.pid))
                await self._switch(rng)
            outcome = await self._request(rng)
            self.outcomes[outcome] += 1
            if outcome == "refused":
                await asyncio.sleep(rng.uniform(0, 2 * STAY_S[self.backend]))

    async def _request(self, rng: random.Random) -> str:
        path, body = make_request(rng)
        leaves = rng.random() < 1 / 3
        client = Client(self.port)
        async with client:
            answer = asyncio.create_task(client.post(path, body))
            if leaves:
                await asyncio.wait([answer], timeout=rng.expovariate(1 / STAY_S[self.backend]))
                if not answer.done():
                    answer.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await answer
                    return "left"
            status, raw = await answer
        return outcome_of(status, raw)

    async def _switch(self, rng: random.Random) -> None:
        async with Client(self.port) as client:
            version = json.loads((await client.get("/scheduler"))[1])["policy"]["version"]
            status, raw = await client.patch("/scheduler/policy", {"expected_version": version, "set": rng.choice(POLICIES)})
        if status not in (200, 409):
            raise AssertionError(f"the policy could not be switched: {status} {raw!r}")

    async def _quiet(self) -> dict[str, Any]:
        """The state once nothing works any more, five seconds at most: clients that left are noticed at their next byte."""
        async with Client(self.port) as client:
            for _ in range(100):
                state: dict[str, Any] = json.loads((await client.get("/scheduler"))[1])
                if not state["queue"]["depth"] and all(slot["task"] is None for slot in state["slots"]):
                    break
                await asyncio.sleep(0.05)
        return state


def make_request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    text = " ".join(rng.choices(WORDS, k=int(rng.triangular(1, 120, 10))))
    body: dict[str, Any] = {"prompt": text, "n_predict": rng.randint(1, 24), "stream": rng.random() < 0.5}
    kind = rng.randrange(8)
    if kind == 0:
        body["n_cmpl"] = rng.randint(2, 3)
    elif kind == 1:
        body["prompt"] = [text, " ".join(rng.choices(WORDS, k=5))]
    elif kind == 2:
        body["id_slot"] = rng.randrange(SLOTS)
    elif kind == 3:
        body["queue_timeout_ms"] = rng.randint(1, 30)
    elif kind == 4:
        body |= {"stop": [rng.choice(WORDS)], "return_progress": body["stream"], "timings_per_token": True}
    elif kind == 5:
        del body["prompt"]
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}
    return "/completion", body


def outcome_of(status: int, raw: bytes) -> str:
    if status == 503 or b'data: {"error":{"code":503' in raw:
        return "refused"
    if status == 200 and b'data: {"error"' not in raw:
        return "answered"
    return f"{status}: {raw[-200:]!r}"


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} has no resident memory")


def n_sockets(pid: int) -> int:
    """Open sockets of a process, the listening one and those of its event loop among them."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += entry.readlink().name.startswith("socket:")
    return count


def soak(backend: str, n_requests: int, *, unified: bool = False, seed: int = 1) -> dict[str, object]:
    """The figures of one run. The server is a process of its own, ended by SIGTERM."""
    port = free_port()
    flags = [*FLAGS, "--kv-unified" if unified else "--no-kv-unified", "--port", str(port), "--backend", backend]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.soak", "--serve", *flags], stdout=subprocess.DEVNULL)
    try:
        asyncio.run(wait_healthy(process, port))
        run = Soak(port, process.pid, backend, n_requests, seed)
        state = asyncio.run(run.run())
        end_mb, sockets = rss_mb(process.pid), n_sockets(process.pid)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        drain_s = time.monotonic() - began
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    rows = [(f"{tenth + 1}0 %", f"{mb:.1f}") for tenth, mb in enumerate(run.rss_mb)]
    print(table(("requests sent", "resident MB"), rows), flush=True)
    known = {name: run.outcomes.pop(name, 0) for name in ("answered", "refused", "left")}
    for what, count in run.outcomes.items():
        print(f"{count} times {what}")
    warm_mb = run.rss_mb[len(run.rss_mb) // 2 - 1]
    return {
        "requests": n_requests,
        **known,
        "other": sum(run.outcomes.values()),
        "busy_slots": sum(slot["task"] is not None for slot in state["slots"]),
        "queued": state["queue"]["depth"],
        "sockets": sockets,
        "tasks_finished": state["totals"]["tasks_finished"],
        "iterations": state["iteration"],
        "rss_warm_mb": round(warm_mb, 1),
        "rss_end_mb": round(end_mb, 1),
        "rss_growth": round(end_mb / warm_mb - 1, 4),
        "drain_s": round(drain_s, 2),
        "exit_code": code,
    }


def _serve(flags: list[str]) -> int:
    """The engine's own command, with a simulated backend that costs no time."""

    def load(options: Options) -> Backend:
        if options.backend != "simulated":
            return load_backend(options)
        return SimulatedBackend(options.backend_options, CostModel(0.0, 0.0, 0.0, 0.0), RealClock())

    return engine_main(flags, load)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(_serve(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--backend", choices=list(REQUESTS), default="simulated")
    parser.add_argument("--requests", type=int, default=0, help="default: 20,000, on llama.cpp 1,500")
    parser.add_argument("--unified", action="store_true", help="one KV cache for all slots")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    figures = soak(given.backend, given.requests or REQUESTS[given.backend], unified=given.unified, seed=given.seed)
    finish("soak", figures)


if __name__ == "__main__":
    main()
