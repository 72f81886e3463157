"""Sample runs of warm-behind-cold: blocks played through a small batch model with known costs, and the `results` that follow.

Times agree with each other the way a real run's do: the short request of an arm A block waits for the whole cold prompt, that of
an arm B block for one batch. Nothing here is a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

N_BATCH = 2048
START = 1_764_500_000.0
COST_S = 0.000176  # a prompt token at depth 0
COST_PER_DEPTH_S = 9.7e-9  # added for each token before it
TOKEN_S = 0.0016  # a generation step


@dataclass(slots=True)
class Work:
    """One request as it goes through the batches."""

    role: str
    slot: int
    sent_at: float
    depth: int
    left: int
    generate: int
    first_visit_at: float | None = None
    prompt_done_at: float | None = None
    done_at: float | None = None
    n_prompt: int = 0

    def as_request(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "slot": self.slot,
            "sent_at": self.sent_at,
            "first_visit_at": self.first_visit_at,
            "done_at": self.done_at,
        }


def make_block(
    order: str = "physical", *, start: float = START, scale: float = 1.0, seed: int = 1, generate: int = 1
) -> dict[str, Any]:
    """One block: {"timeline": {"iterations", "requests"}, "samples": {"cold": {...}, "short": {...}}}."""
    rng = Random(seed)
    speed = rng.uniform(0.96, 1.05)
    cold = Work("cold", 0, start, 0, int(18_000 * scale), generate)
    share = 0.1 + rng.uniform(0.0, 0.1)
    short = Work("short", 1, start + share * 4.75 * scale, int(40_000 * scale), int(1_500 * scale), generate)
    for work in (cold, short):
        work.n_prompt = work.left
    iterations = _play([cold, short], order, start, speed, rng)
    return {
        "timeline": {"iterations": iterations, "requests": [cold.as_request(), short.as_request()]},
        "samples": {work.role: _times(work) for work in (cold, short)},
    }


def _times(work: Work) -> dict[str, float]:
    assert work.first_visit_at is not None
    assert work.prompt_done_at is not None
    assert work.done_at is not None
    return {
        "wall_s": work.done_at - work.sent_at,
        "wait_s": work.first_visit_at - work.sent_at,
        "prompt_s": work.prompt_done_at - work.first_visit_at,
    }


def _play(works: list[Work], order: str, start: float, speed: float, rng: Random) -> list[dict[str, Any]]:
    now, number, cursor = start + 0.004, 4600, 0
    iterations: list[dict[str, Any]] = []
    while any(work.done_at is None for work in works):
        present = [work for work in works if work.sent_at <= now and work.done_at is None]
        if not present:
            now = min(work.sent_at for work in works if work.done_at is None)
            continue
        generation = [(work.slot, 1) for work in present if work.prompt_done_at is not None]
        prompt, skipped, cost = _fill(present, order, cursor, N_BATCH - len(generation), now)
        if prompt:
            cursor = prompt[-1][0]
        duration = (cost * speed + TOKEN_S * bool(generation)) * rng.uniform(0.99, 1.01)
        iterations.append(_record(number, now, duration, prompt, generation, skipped, cursor))
        now, number = now + duration + 0.0004, number + 1
        _settle(present, dict(generation), now)
    return iterations


def _fill(
    present: list[Work], order: str, cursor: int, room: int, now: float
) -> tuple[list[tuple[int, int]], list[tuple[int, str]], float]:
    pending = [work for work in present if work.left]
    if order == "rotating":
        pending.sort(key=lambda work: (work.slot <= cursor, work.slot))
    prompt: list[tuple[int, int]] = []
    skipped: list[tuple[int, str]] = []
    cost = 0.0
    for work in pending:
        taken = min(room, work.left)
        if not taken:
            first = prompt[0]
            skipped.append((work.slot, f"batch full, slot {first[0]} took {first[1]} of {N_BATCH}"))
            continue
        work.first_visit_at = now if work.first_visit_at is None else work.first_visit_at
        cost += taken * (COST_S + COST_PER_DEPTH_S * (work.depth + taken / 2))
        work.depth, work.left, room = work.depth + taken, work.left - taken, room - taken
        prompt.append((work.slot, taken))
    return prompt, skipped, cost


def _record(number: int, t: float, duration: float, prompt: Any, generation: Any, skipped: Any, cursor: int) -> dict[str, Any]:
    return {
        "i": number,
        "t": t,
        "plan_ms": 0.05,
        "run_ms": duration * 1000,
        "settle_ms": 0.03,
        "prompt": [list(part) for part in prompt],
        "gen": [list(part) for part in generation],
        "skipped": [list(part) for part in skipped],
        "held": [],
        "phase": "continuous",
        "cohort": None,
        "sealed": False,
        "anchor": 0,
        "cursor": cursor,
        "policy": 3,
        "queue": 0,
        "error": "",
    }


def _settle(present: list[Work], generated: dict[int, int], now: float) -> None:
    for work in present:
        if work.slot in generated:
            work.generate -= 1
        elif not work.left and work.prompt_done_at is None:
            work.prompt_done_at = now
            work.generate -= 1  # the first token comes from the prompt's last batch
        if work.prompt_done_at is not None and work.generate <= 0:
            work.done_at = now


def make_pairs(count: int, *, seed: int = 1, scale: float = 1.0) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """(pairs, {pair: {"A": timeline, "B": timeline}}) in the form of `workers.selectors.results`."""
    pairs: list[dict[str, Any]] = []
    timelines: dict[int, dict[str, Any]] = {}
    for number in range(1, count + 1):
        pair: dict[str, Any] = {"pair": number}
        timelines[number] = {}
        for arm, order in (("A", "physical"), ("B", "rotating")):
            block = make_block(order, start=START + 20 * number, scale=scale, seed=seed * 1000 + number * 2 + (arm == "B"))
            requests = block["timeline"]["requests"]
            makespan = max(request["done_at"] for request in requests) - min(request["sent_at"] for request in requests)
            pair[arm] = {**block["samples"], "makespan_s": makespan}
            timelines[number][arm] = block["timeline"]
        pairs.append(pair)
    return pairs, timelines


MEASURES = (
    ("short_wall", "Short request, E2E", "short", "wall_s"),
    ("short_wait", "Short request, wait", "short", "wait_s"),
    ("short_prompt", "Short request, prompt time", "short", "prompt_s"),
    ("cold_wall", "Cold request, E2E", "cold", "wall_s"),
    ("cold_prompt", "Cold request, prompt time", "cold", "prompt_s"),
)


def make_results(count: int = 8, *, seed: int = 1, scale: float = 1.0) -> dict[str, Any]:
    """What `workers.selectors.results` gives for a run of `count` finished pairs."""
    pairs, timelines = make_pairs(count, seed=seed, scale=scale)
    measures = []
    for key, label, role, field in MEASURES:
        measures.append(_measure(key, label, [(pair["A"][role][field], pair["B"][role][field]) for pair in pairs]))
    measures.append(_measure("makespan", "Both done", [(p["A"]["makespan_s"], p["B"]["makespan_s"]) for p in pairs]))
    return {
        "pairs": pairs,
        "measures": measures,
        "verdict": f"{count} pairs are done." if count else "No pair is done yet.",
        "noise": None,
        "warnings": [],
        "timelines": timelines[count] if count else {},
    }


def _measure(key: str, label: str, values: list[tuple[float, float]]) -> dict[str, Any]:
    if not values:
        none = {"median": None, "min": None, "max": None}
        ratio = {"median": None, "low": None, "high": None, "n": 0}
        head = {"key": key, "label": label, "unit": "s", "a": none, "b": none}
        return {**head, "ratio": ratio, "times_sooner": None, "verdict": "too few pairs"}
    ratios = sorted(b / a for a, b in values if a > 0)
    middle = median(ratios)
    enough = len(ratios) >= 6
    low, high = (ratios[0], ratios[-1]) if enough else (None, None)
    verdict = "too few pairs"
    if low is not None and high is not None:
        verdict = "shown" if high < 1 or low > 1 else "no difference shown"
    return {
        "key": key,
        "label": label,
        "unit": "s",
        "a": _spread([a for a, _ in values]),
        "b": _spread([b for _, b in values]),
        "ratio": {"median": middle, "low": low, "high": high, "n": len(ratios)},
        "times_sooner": 1 / middle,
        "verdict": verdict,
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}
