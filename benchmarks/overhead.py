"""What the scheduler itself costs: plan + settle per iteration, without a model, for several kinds of load, in CPU time.

`python -m benchmarks.overhead` prints a table, and as its last line the figures as JSON (medians and extremes in microseconds;
`us_8` and `us_256` are the dearest load's median).
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import Outcome, Plan
from engine.scheduler.policy import PhaseMode, Policy, PrefillOrder
from engine.scheduler.task import Task

ITERATIONS = 400
WARM_UP = 50
N_BATCH = 2048
N_CTX_SLOT = 131072
LONG = 100_000


@dataclass
class Load:
    """Keeps every slot busy: `prompt` tokens in, `n_predict` out, and again when a slot is free."""

    scheduler: Scheduler
    prompt: int
    n_predict: int
    next_id: int = 0

    def refill(self) -> None:
        while self.scheduler.n_busy < self.scheduler.config.n_slots:
            self.next_id += 1
            start = self.next_id * 1_000_003
            self.scheduler.submit(Task(self.next_id, list(range(start, start + self.prompt)), n_predict=self.n_predict), 0.0)


LOADS: dict[str, tuple[Policy, int, int]] = {
    "all generate": (Policy(), 4, 100_000),
    "all prompts, rotating": (Policy(prefill_order=PrefillOrder.ROTATING), LONG, 1),
    "all prompts, fair": (Policy(prefill_order=PrefillOrder.FAIR), LONG, 1),
    "mixed, rotating": (Policy(prefill_order=PrefillOrder.ROTATING), 700, 30),
    "mixed, shortest first": (Policy(prefill_order=PrefillOrder.SHORTEST_FIRST), 700, 30),
    "barrier": (Policy(phase=PhaseMode.BARRIER), 700, 30),
}


def outcome_of(plan: Plan) -> Outcome:
    return Outcome({entry.slot: 7 for entry in plan.entries if entry.output})


def measure(name: str, n_slots: int) -> list[float]:
    """Microseconds of plan + settle for each iteration under one load."""
    policy, prompt, n_predict = LOADS[name]
    config = SchedulerConfig(n_slots, N_CTX_SLOT, N_CTX_SLOT * n_slots, n_batch=N_BATCH)
    scheduler = Scheduler(config, policy)
    load = Load(scheduler, min(prompt, LONG if n_slots <= 8 else 20_000), n_predict)
    taken = []
    for _ in range(WARM_UP + ITERATIONS):
        load.refill()
        begin = time.thread_time()
        plan = scheduler.plan(0.0)
        planned = time.thread_time()
        outcome = outcome_of(plan)
        ran = time.thread_time()
        scheduler.settle(plan, outcome, 0.0)
        taken.append((planned - begin + time.thread_time() - ran) * 1e6)
    return taken[WARM_UP:]


def table(rows: list[tuple[str, int, list[float]]]) -> Iterator[str]:
    yield f"{'load':24} {'slots':>5} {'min us':>9} {'median us':>10} {'max us':>9}"
    for name, n_slots, taken in rows:
        yield f"{name:24} {n_slots:5} {min(taken):9.1f} {statistics.median(taken):10.1f} {max(taken):9.1f}"


def figures(rows: list[tuple[str, int, list[float]]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for n_slots in (8, 256):
        dearest = max((taken for _, slots, taken in rows if slots == n_slots), key=statistics.median)
        parts: tuple[tuple[str, Callable[[list[float]], float]], ...] = (("", statistics.median), ("_min", min), ("_max", max))
        for suffix, pick in parts:
            found[f"us_{n_slots}{suffix}"] = round(pick(dearest), 1)
    return found


def main() -> None:
    gc.freeze()
    rows = [(name, n_slots, measure(name, n_slots)) for n_slots in (8, 256) for name in LOADS]
    print("\n".join(table(rows)))
    print(json.dumps({"name": "overhead", "figures": figures(rows)}))


if __name__ == "__main__":
    main()
