"""A short request on a warm slot against a long cold prompt, under each prefill order: its worth and its cost.

Orders are tried plain, and one with a prefill chunk too: then the batch that runs when the short request comes is smaller.

Each block visits the orders forth and back (ABBA), so that a drift of the machine cancels; all of a half share one submission
phase, drawn at random within a batch. Ratios compare an order with physical order inside its half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Answer,
    Client,
    Flags,
    ServerFailed,
    complete,
    engine_command,
    finish,
    free_port,
    model_path,
    request,
    serving,
    spread,
    table,
)

COLD_SLOT, SHORT_SLOT = 0, 1
BASE = "physical"
CHUNKED = "shortest_first"  # tried with a prefill chunk of one physical batch too


@dataclass(frozen=True, slots=True)
class Sizes:
    """Prompt tokens of the scenario; `factor` 1 is the published one."""

    cold: int
    warm: int
    short: int

    @classmethod
    def scaled(cls, factor: float) -> Sizes:
        return cls(*(max(64, round(n * factor)) for n in (18_000, 40_000, 1_500)))

    def flags(self) -> Flags:
        longest = max(self.cold, self.warm + self.short) + 256
        return Flags(ctx_size=4 * -(-longest // 1024) * 1024)


@dataclass(frozen=True, slots=True)
class Trial:
    """One contended run; seconds from the cold prompt's submission (makespan) or the request's own (the others)."""

    order: str
    short_s: float
    short_wait_s: float
    cold_s: float
    makespan_s: float


class Scenario:
    """Drives one engine through the trials; a new connection each time, since servers close those that idle for seconds."""

    def __init__(self, port: int, sizes: Sizes, rng: random.Random) -> None:
        self._port, self._sizes, self._rng = port, sizes, rng
        self._warm_ids: list[int] = []

    async def warm(self) -> None:
        body = request(self._rng, self._sizes.warm, 1, slot=SHORT_SLOT)
        self._warm_ids = body["prompt"]
        await self._complete(body)

    async def arms(self, chunk: int) -> dict[str, dict[str, Any]]:
        """Policies by name: every order that the engine offers, and one with a chunk."""
        state = await self._json("GET", "/scheduler")
        orders = state["capabilities"]["policy"]["prefill_order"]["values"]
        found = {order: {"prefill_order": order, "prefill_chunk": None} for order in orders}
        return found | {f"{CHUNKED} {chunk}": {"prefill_order": CHUNKED, "prefill_chunk": chunk}}

    async def use(self, policy: Mapping[str, Any]) -> None:
        """Switch, and read back that the policy is in force."""
        version = (await self._json("GET", "/scheduler"))["policy"]["version"]
        await self._json("PATCH", "/scheduler/policy", {"expected_version": version, "set": policy})
        effective = (await self._json("GET", "/scheduler"))["policy"]["effective"]
        if any(effective[name] != value for name, value in policy.items()):
            raise ServerFailed(f"{policy} was asked for, {effective} is in force")

    async def short_alone(self) -> float:
        return (await self._send_short()).wall_s

    async def cold_alone(self) -> float:
        return (await self._send_cold()).wall_s

    async def contended(self, order: str, policy: Mapping[str, Any], delay_s: float) -> Trial:
        await self.use(policy)
        running = asyncio.create_task(self._send_cold())
        await asyncio.sleep(delay_s)
        short = await self._send_short()
        cold = await running
        wait_s = short.wall_s - short.timings["prompt_ms"] / 1e3
        return Trial(order, short.wall_s, wait_s, cold.wall_s, max(short.ended, cold.ended) - cold.begun)

    async def _send_cold(self) -> Answer:
        return await self._complete(request(self._rng, self._sizes.cold, 1, slot=COLD_SLOT))

    async def _send_short(self) -> Answer:
        body = request(self._rng, self._sizes.short, 1, slot=SHORT_SLOT)
        answer = await self._complete(body | {"prompt": self._warm_ids + body["prompt"]})
        if answer.prompt_n != self._sizes.short:
            raise ServerFailed(f"the warm slot was lost: {answer.prompt_n} prompt tokens were computed, not {self._sizes.short}")
        return answer

    async def _complete(self, body: Mapping[str, Any]) -> Answer:
        async with Client(self._port) as client:
            return await complete(client, body)

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        async with Client(self._port) as client:
            status, raw = await (client.get(path) if body is None else client.patch(path, body))
        if status != 200:
            raise ServerFailed(f"{method} {path} answered {status}: {raw[:300]!r}")
        answer: dict[str, Any] = json.loads(raw)
        return answer


@dataclass(frozen=True, slots=True)
class Half:
    """One pass over all orders at one submission phase, with both requests' times alone beside it."""

    short_alone_s: float
    cold_alone_s: float
    trials: Mapping[str, Trial]


Arms = Mapping[str, Mapping[str, Any]]


async def run_half(scenario: Scenario, arms: Arms, sizes: Sizes, batch_size: int, phase: float) -> Half:
    """`phase` 0..1 places the short one's submission inside the cold prompt's second batch."""
    short_alone, cold_alone = await scenario.short_alone(), await scenario.cold_alone()
    batch_s = cold_alone * batch_size / sizes.cold
    trials = {order: await scenario.contended(order, policy, (1 + phase) * batch_s) for order, policy in arms.items()}
    return Half(short_alone, cold_alone, trials)


async def run(port: int, sizes: Sizes, flags: Flags, blocks: int, seed: int) -> tuple[list[str], list[Half]]:
    rng = random.Random(seed)
    scenario = Scenario(port, sizes, rng)
    arms = await scenario.arms(flags.ubatch_size)
    await scenario.warm()
    await scenario.cold_alone()
    halves = []
    for _ in range(blocks):
        for direction in (1, -1):
            visited = dict(list(arms.items())[::direction])
            halves.append(await run_half(scenario, visited, sizes, flags.batch_size, rng.random()))
            print(describe(halves[-1]), flush=True)
    await scenario.use(arms[BASE])
    return list(arms), halves


def describe(half: Half) -> str:
    walls = ", ".join(f"{trial.order} {trial.short_s:.2f}" for trial in half.trials.values())
    return f"alone: short {half.short_alone_s:.2f} s, cold {half.cold_alone_s:.2f} s; short contended: {walls}"


def speedups(halves: Sequence[Half], order: str) -> list[float]:
    return [half.trials[BASE].short_s / half.trials[order].short_s for half in halves]


def makespan_ratios(halves: Sequence[Half], order: str) -> list[float]:
    return [half.trials[order].makespan_s / half.trials[BASE].makespan_s for half in halves]


def cold_delays(halves: Sequence[Half], order: str) -> list[float]:
    """How much later than alone the cold prompt ends, in units of the short request's time alone."""
    return [(half.trials[order].cold_s - half.cold_alone_s) / half.short_alone_s for half in halves]


def summarise(orders: Sequence[str], halves: Sequence[Half]) -> dict[str, object]:
    others = [order for order in orders if order != BASE]
    best = max(others, key=lambda order: statistics.median(speedups(halves, order)))
    figures: dict[str, object] = {"best_order": best}
    for label, order in (("rotating", "rotating"), ("best", best)):
        figures |= spread(speedups(halves, order), f"short_speedup_{label}")
        figures |= spread(makespan_ratios(halves, order), f"makespan_ratio_{label}")
    return figures | spread(cold_delays(halves, "rotating"), "cold_delay_rotating")


def report(orders: Sequence[str], halves: Sequence[Half]) -> str:
    def middle(values: Sequence[float]) -> str:
        return f"{statistics.median(values):.2f}"

    heads = ["order", "short s", "wait s", "cold s", "speed-up", "min", "max", "makespan", "cold delay"]
    rows = []
    for order in orders:
        trials = [half.trials[order] for half in halves]
        ups = speedups(halves, order)
        times = [middle([getattr(trial, name) for trial in trials]) for name in ("short_s", "short_wait_s", "cold_s")]
        costs = [f"{statistics.median(makespan_ratios(halves, order)):.3f}", middle(cold_delays(halves, order))]
        rows.append([order, *times, middle(ups), f"{min(ups):.2f}", f"{max(ups):.2f}", *costs])
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness")
    parser.add_argument("--blocks", type=int, default=3, help="each visits every order twice")
    parser.add_argument("--factor", type=float, default=1.0, help="scales all prompts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path)
    args = parser.parse_args()
    sizes = Sizes.scaled(args.factor)
    flags, port = sizes.flags(), free_port()
    with serving(engine_command(model_path(args.model), port, flags), port):
        orders, halves = asyncio.run(run(port, sizes, flags, args.blocks, args.seed))
    print(report(orders, halves))
    finish("fairness", summarise(orders, halves) | {"halves": len(halves), "factor": args.factor})


if __name__ == "__main__":
    main()
