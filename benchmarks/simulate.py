"""The cost model against a published run, and how much faster than real time it is.

The run: a 35B mixture model with hybrid memory on a laptop, non-unified KV, batches of 2,048. A cold prompt of 18,000 tokens is
in slot 0 when 1,500 new tokens come for slot 1, which holds 40,000: under physical order, under rotating order, and alone. Three
mechanisms of that server are laid over the scheduler and the cost model here: the next batch is built when the one before begins
to compute; a batch stops where the hybrid memory keeps its checkpoints, 2,052 and 4 tokens before a prompt's end; and slots in
ascending order share sub-batches in equal parts, whose attention goes over the longest of them.

The last line is JSON: `max_error`, the largest of the seven relative errors against what was measured there, and
`times_real_time`, simulated seconds over seconds that it took, for that run and, as `times_real_time_chat`, for an hour of chats.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common import finish, spread, table
from engine.backends.base import BackendOptions
from engine.backends.simulated import FIRST_WORD, CostModel, SimulatedBackend
from engine.clock import VirtualClock
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import Entry, Plan
from engine.scheduler.policy import Policy, PrefillOrder, RotationStart
from engine.scheduler.task import SamplingParams, Task
from engine.tiny_tokenizer import WORDS

CTX_SLOT = 159_232  # tokens, as the published server had them
COLD, SHORT, WARM = 18_000, 1_500, 40_000  # prompt tokens
STOPS = (2_052, 4)  # a batch and 4 before the end, and 4 before it
SHORT_AT_S = 2.39  # after the cold prompt; fitted, as is the next
FIRST_BATCH_S = 0.49  # from the cold prompt's submission to its first batch
GREEDY = SamplingParams(temperature=0.0)
ROTATING = Policy(prefill_order=PrefillOrder.ROTATING, rotation_start=RotationStart.AFTER_LAST)

MEASURED = {
    "short alone": 3.1,
    "physical, short": 23.4,
    "physical, short from its first visit": 11.4,
    "physical, cold": 25.4,
    "rotating, short": 8.2,
    "rotating, short from its first visit": 8.0,
    "rotating, cold": 25.4,
}  # seconds


class SharedCost(CostModel):
    """As the cost model, with what sharing sub-batches of non-unified KV adds."""

    def plan_s(self, plan: Plan) -> float:
        runs: list[list[Entry]] = []
        for entry in plan.entries:
            if runs and runs[-1][-1].slot < entry.slot:
                runs[-1].append(entry)
            else:
                runs.append([entry])
        return super().plan_s(plan) + self.beta * sum(map(_deeper, runs))


def _deeper(run: Sequence[Entry]) -> int:
    """Cells that a run of entries attends to beyond its own."""
    parts, extra = [(entry.pos, len(entry.tokens)) for entry in run], 0
    while len(parts) > 1:
        shared, deepest = min(n for _, n in parts), max(pos for pos, _ in parts)
        extra += sum(shared * (deepest - pos) for pos, _ in parts)
        parts = [(pos + shared, n - shared) for pos, n in parts if n > shared]
    return extra


@dataclass(slots=True)
class Times:
    """Of one task, in seconds: `first_visit_at` is when the batch with its first tokens was built."""

    submitted_at: float
    first_visit_at: float = 0.0
    ended_at: float = 0.0


class Server:
    """A scheduler over the cost model which builds a batch as soon as the one before begins to compute."""

    def __init__(self, policy: Policy, n_slots: int = 4, stops: tuple[int, ...] = STOPS) -> None:
        config = SchedulerConfig(n_slots, CTX_SLOT, n_slots * CTX_SLOT, prompt_stops=stops)
        self._scheduler = Scheduler(config, policy)
        self._cost = SharedCost()
        self._backend = SimulatedBackend(BackendOptions(n_slots, n_slots * CTX_SLOT, "split"), self._cost, VirtualClock())
        self.free_at = self._now = 0.0  # when the last batch ends; when the next may be built

    def run(self, arrivals: Sequence[tuple[float, Task]], first_batch_s: float = 0.0) -> dict[int, Times]:
        """The tasks' times; `arrivals` in order of time. The first batch begins `first_batch_s` after the first of them."""
        waiting, scheduler = list(arrivals), self._scheduler
        times: dict[int, Times] = {}
        self.free_at = max(self.free_at, waiting[0][0] + first_batch_s)
        while waiting or scheduler.has_work or scheduler.queue_depth:
            if waiting and not scheduler.has_work:
                self._now = max(self._now, waiting[0][0])
            while waiting and waiting[0][0] <= self._now:
                at, task = waiting.pop(0)
                times[task.id] = Times(at)
                scheduler.submit(task, at)
            self._batch(times)
        return times

    def _batch(self, times: dict[int, Times]) -> None:
        plan = self._scheduler.plan(self._now)
        for start in plan.starts:
            times[start.task.id].first_visit_at = self._now
        begins = max(self.free_at, self._now)
        self.free_at = begins + self._cost.plan_s(plan)
        settlement = self._scheduler.settle(plan, self._backend.run(plan), begins)
        for finished in settlement.finished:
            times[finished.task_id].ended_at = self.free_at
        self._now = begins


def prompt(rng: random.Random, n: int) -> list[int]:
    return [FIRST_WORD + rng.randrange(len(WORDS)) for _ in range(n)]


def published(policy: Policy, *, cold: bool) -> tuple[Times, Times | None, float]:
    """Times of the short task, of the cold one where there is one, and all simulated seconds, the warm slot's among them."""
    rng, server = random.Random(1), Server(policy)
    warm = prompt(rng, WARM)
    server.run([(0.0, Task(1, warm, 1, sampling=GREEDY, id_slot=1))])
    begin = server.free_at
    short = Task(2, warm + prompt(rng, SHORT), 1, sampling=GREEDY, id_slot=1)
    if not cold:
        return server.run([(begin, short)])[2], None, server.free_at
    first = Task(3, prompt(rng, COLD), 1, sampling=GREEDY, id_slot=0)
    times = server.run([(begin, first), (begin + SHORT_AT_S, short)], FIRST_BATCH_S)
    return times[2], times[3], server.free_at


def headline() -> tuple[dict[str, float], float]:
    """Seconds, by the names of MEASURED, and the seconds that were simulated for them."""
    alone, _, simulated = published(Policy(), cold=False)
    found = {"short alone": _wall(alone)}
    for name, policy in (("physical", Policy()), ("rotating", ROTATING)):
        short, cold, seconds = published(policy, cold=True)
        simulated += seconds
        assert cold is not None
        found |= {
            f"{name}, short": _wall(short),
            f"{name}, short from its first visit": short.ended_at - short.first_visit_at,
            f"{name}, cold": _wall(cold),
        }
    return found, simulated


def _wall(times: Times) -> float:
    return times.ended_at - times.submitted_at


def chats(hours: float) -> float:
    """Simulated seconds of an eight-slot server with chats at two thirds of what it can do."""
    rng, at = random.Random(2), 0.0
    arrivals: list[tuple[float, Task]] = []
    while at < hours * 3600:
        arrivals.append((at, Task(len(arrivals), prompt(rng, rng.randint(50, 1500)), rng.randint(20, 300), sampling=GREEDY)))
        at += rng.expovariate(1 / 4.7)
    server = Server(Policy(prefill_order=PrefillOrder.ROTATING), 8, ())
    server.run(arrivals)
    return server.free_at


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description="The cost model against a published run.")
    parser.add_argument("--rounds", type=int, default=5, help="of the published run, for its speed")
    parser.add_argument("--hours", type=float, default=1.0, help="of chats")
    args = parser.parse_args()
    speeds = []
    for _ in range(args.rounds):
        began = time.perf_counter()
        found, simulated = headline()
        speeds.append(simulated / (time.perf_counter() - began))
    errors = {name: abs(found[name] / seconds - 1) for name, seconds in MEASURED.items()}
    rows = [[name, f"{seconds:.1f}", f"{found[name]:.2f}", f"{errors[name]:.1%}"] for name, seconds in MEASURED.items()]
    print(table(["seconds", "measured", "simulated", "error"], rows))
    began = time.perf_counter()
    chat = chats(args.hours) / (time.perf_counter() - began)
    figures = {"max_error": round(max(errors.values()), 4), **spread(speeds, "times_real_time")}
    finish("simulate", figures | {"times_real_time_chat": round(chat)})


if __name__ == "__main__":
    main()
