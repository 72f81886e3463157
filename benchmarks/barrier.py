"""The phase barrier under unequal prompts, on and off: nobody hears a first token early, and everybody hears the same tokens.

`python -m benchmarks.barrier` runs the cost model on a clock of its own, so the figures are the same at every run;
`--backend llama` decodes the small model, with prompts a tenth as long. The last line is JSON with the sums over all barrier
runs: `early_first_tokens` (first tokens shown while the prompt of a member of the same cohort was not done),
`outputs_identical` (to the run without a barrier) and `holds_over_cap` (first tokens held for longer than
`barrier_max_hold_ms` and the batch in flight).
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import finish, model_path, table
from engine.backends import create_backend
from engine.backends.base import Backend, BackendOptions
from engine.backends.simulated import FIRST_WORD
from engine.clock import Clock, RealClock, VirtualClock
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import Finished
from engine.scheduler.policy import BarrierJoin, PhaseMode, Policy
from engine.scheduler.task import SamplingParams, Task
from engine.tiny_tokenizer import WORDS

N_SLOTS = 8
N_BATCH = 512
CELLS = 16384
SCALE_LLAMA = 0.1
CAP_MS = 2000
SEEDS = range(5)
GREEDY = SamplingParams(temperature=0.0)

POLICIES: dict[str, Policy] = {
    "off": Policy(),
    "barrier": Policy(phase=PhaseMode.BARRIER),
    "window of 5 s": Policy(phase=PhaseMode.BARRIER, barrier_join=BarrierJoin.WINDOW, barrier_join_window_ms=5000),
    "hold of at most 2 s": Policy(phase=PhaseMode.BARRIER, barrier_max_hold_ms=CAP_MS),
    "8 tokens at a stretch": Policy(phase=PhaseMode.BARRIER, barrier_max_generation_tokens=8),
    "all limits": Policy(
        phase=PhaseMode.BARRIER,
        barrier_join=BarrierJoin.WINDOW,
        barrier_join_window_ms=5000,
        barrier_max_hold_ms=CAP_MS,
        barrier_max_generation_tokens=8,
    ),
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task, and the iteration before which it comes."""

    at: int
    task: Task


@dataclass
class Run:
    """What one policy did with one load. Times in seconds on the run's clock."""

    outputs: dict[int, list[int]] = field(default_factory=dict)
    finished: list[Finished] = field(default_factory=list)
    early: int = 0
    longest_batch_s: float = 0.0
    took_s: float = 0.0

    def holds(self) -> list[float]:
        pairs = [(f.first_token_at, f.prompt_done_at) for f in self.finished]
        return [first - done for first, done in pairs if first is not None and done is not None]

    def over_cap(self, cap_s: float) -> int:
        """The cap is checked after each batch, so the one in flight is allowed for; a microsecond for the rounding of sums."""
        return sum(hold > cap_s + self.longest_batch_s + 1e-6 for hold in self.holds())


def load(seed: int, scale: float) -> list[Arrival]:
    """24 tasks with prompts of 20 to 6,000 tokens (times `scale`) and 1 to 40 tokens out; four at the start, the others later."""
    rng = random.Random(seed)
    arrivals = []
    for number in range(24):
        size = max(2, round(rng.choice((20, 100, 700, 2000, 6000)) * scale * rng.uniform(0.7, 1.3)))
        prompt = [FIRST_WORD + rng.randrange(len(WORDS)) for _ in range(size)]
        task = Task(number, prompt, rng.randint(1, 40), sampling=GREEDY)
        arrivals.append(Arrival(0 if number < N_SLOTS // 2 else rng.randrange(60), task))
    return sorted(arrivals, key=lambda arrival: arrival.at)


def run(backend: Backend, clock: Clock, policy: Policy, arrivals: list[Arrival]) -> Run:
    info = backend.info
    config = SchedulerConfig(N_SLOTS, info.n_ctx_slot, info.n_ctx, n_batch=info.n_batch, n_ubatch=info.n_ubatch)
    scheduler, found, waiting = Scheduler(config, policy), Run(), list(arrivals)
    began, turn = clock.now(), 0
    while waiting or scheduler.has_work or scheduler.queue_depth:
        while waiting and waiting[0].at <= turn:
            scheduler.submit(waiting.pop(0).task, clock.now())
        turn += 1
        plan = scheduler.plan(clock.now())
        before = clock.now()
        outcome = backend.run(plan)
        now = clock.now()
        found.longest_batch_s = max(found.longest_batch_s, now - before)
        settlement = scheduler.settle(plan, outcome, now)
        for emission in settlement.emissions:
            found.outputs.setdefault(emission.task_id, []).append(emission.token)
        found.finished.extend(settlement.finished)
        first = sum(emission.first for emission in settlement.emissions)
        if first and _prompts_to_do(scheduler.view(now)):
            found.early += first
    found.took_s = clock.now() - began
    return found


def _prompts_to_do(view: dict[str, Any]) -> bool:
    """Whether a prompt of the running cohort, or of any slot where there is none, is not done."""
    cohort = view["phase"]["cohort"]
    return any(slot["state"] in ("waiting", "prompt") and (slot["member"] or cohort is None) for slot in view["slots"])


def compare(kind: str, model: Path | None, scale: float) -> tuple[list[list[str]], dict[str, Any]]:
    """One row for each policy, all loads together, and the figures."""
    clock: Clock = VirtualClock() if kind == "simulated" else RealClock()
    backend = create_backend(kind, model, BackendOptions(N_SLOTS, N_SLOTS * CELLS, "split", n_batch=N_BATCH), clock)
    rows: list[list[str]] = []
    plain: dict[int, dict[int, list[int]]] = {}
    early = over = 0
    identical = True
    for name, policy in POLICIES.items():
        runs = {seed: run(backend, clock, policy, load(seed, scale)) for seed in SEEDS}
        outputs = {seed: found.outputs for seed, found in runs.items()}
        plain = plain or outputs
        cap = policy.barrier_max_hold_ms
        early_here = sum(found.early for found in runs.values())
        over_here = sum(found.over_cap(cap / 1000) for found in runs.values()) if cap is not None else 0
        if policy.phase is PhaseMode.BARRIER:
            early, over, identical = early + early_here, over + over_here, identical and outputs == plain
        holds = [hold for found in runs.values() for hold in found.holds()]
        numbers = (statistics.median(holds), max(holds), max(found.longest_batch_s for found in runs.values()))
        took = statistics.median(found.took_s for found in runs.values())
        rows.append([name, str(early_here), *(f"{number:.2f}" for number in numbers), str(over_here), f"{took:.1f}"])
    backend.close()
    return rows, {"early_first_tokens": early, "outputs_identical": identical, "holds_over_cap": over}


def main() -> None:
    parser = argparse.ArgumentParser(description="The phase barrier under unequal prompts.")
    parser.add_argument("--backend", choices=("simulated", "llama"), default="simulated")
    parser.add_argument("--model", type=Path, help="GGUF file for llama; without it the small model")
    args = parser.parse_args()
    if args.backend == "llama":
        rows, figures = compare("llama", model_path(args.model), SCALE_LLAMA)
    else:
        rows, figures = compare("simulated", None, 1.0)
    heads = ("policy", "early", "hold s, median", "max", "longest batch s", "over cap", "all done after s")
    print(table(heads, rows))
    finish("barrier", figures)


if __name__ == "__main__":
    main()
