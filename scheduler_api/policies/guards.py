"""Guard rails: conditions that put a change back, found in a server's live state (docs/protocol.md section 2). Pure.

Only what began after the change is judged: a request that was sent under the policy before says nothing about this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from scheduler_api.alerts.conditions import fresh
from scheduler_api.health import duration

type State = Mapping[str, Any]


class Metric(StrEnum):
    ERROR_RATE = "error_rate"
    OLDEST_WAIT = "oldest_wait"
    TTFT_P95 = "ttft_p95"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a metric is called, what is told of it, the unit its threshold is typed in (one is `scale`), and how it begins."""

    label: str
    meaning: str
    unit: str
    scale: float
    over: float
    for_s: float
    samples: int


DEFINITIONS: dict[Metric, Definition] = {
    Metric.ERROR_RATE: Definition(
        "Error rate", "Requests that ended in an error, among those that ended and were not cancelled.", "%", 0.01, 0.05, 60.0, 20
    ),
    Metric.OLDEST_WAIT: Definition(
        "Oldest wait",
        "How long the request that waits longest has waited for a slot or for its next token.",
        "s",
        1.0,
        60.0,
        10.0,
        1,
    ),
    Metric.TTFT_P95: Definition(
        "p95 TTFT",
        "95th percentile (nearest rank) of the times to first token. One that still waits counts once it is over the threshold.",
        "s",
        1.0,
        30.0,
        60.0,
        20,
    ),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """Met once `metric` is `over` its threshold (a share, or seconds). Rates and percentiles are taken over the last `for_s`
    seconds and need `samples` requests; a wait has to last `for_s` seconds."""

    metric: Metric
    over: float
    for_s: float
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` None: not known, or too few samples."""

    value: float | None
    samples: int
    of: int = 0


@dataclass(slots=True)
class Memory:
    """Since when each condition that has to last has held, on the console's clock."""

    since: dict[Condition, float] = field(default_factory=dict)


def as_json(condition: Condition) -> dict[str, Any]:
    return {"metric": condition.metric.value, "over": condition.over, "for_s": condition.for_s, "samples": condition.samples}


def from_json(value: Mapping[str, Any]) -> Condition:
    """Raises ValueError for what is no condition."""
    try:
        over, for_s = float(value["over"]), float(value["for_s"])
        condition = Condition(Metric(value["metric"]), over, for_s, int(value.get("samples", 1)))
    except (KeyError, TypeError) as error:
        raise ValueError("A condition has metric, over, for_s and samples.") from error
    top = 1.0 if condition.metric is Metric.ERROR_RATE else 86400.0
    if not (math.isfinite(over) and 0 <= over < top and 0 < for_s <= 3600 and 1 <= condition.samples <= 100):
        raise ValueError(f"{DEFINITIONS[condition.metric].label}: the threshold, the time or the samples are out of range.")
    return condition


def met(conditions: Iterable[Condition], state: State | None, changed_at: float, now: float, memory: Memory) -> str:
    """Why the change is to be put back; "" while it is not. `changed_at` is the server's clock, `now` the console's."""
    if state is None or not fresh(state, now) or (state.get("health") or {}).get("state") not in ("up", "not_serving"):
        memory.since.clear()  # what is not known did not last
        return ""
    for condition in conditions:
        reading = read(condition, state, changed_at, now)
        if reading.value is None or reading.value <= condition.over or not _lasted(condition, memory, now):
            if reading.value is None or reading.value <= condition.over:
                memory.since.pop(condition, None)
            continue
        return sentence(condition, reading)
    return ""


def _lasted(condition: Condition, memory: Memory, now: float) -> bool:
    if condition.metric is not Metric.OLDEST_WAIT:
        return True  # it is taken over the time already
    return now - memory.since.setdefault(condition, now) >= condition.for_s


def read(condition: Condition, state: State, changed_at: float, now: float) -> Reading:
    """What the metric is at the moment."""
    match condition.metric:
        case Metric.ERROR_RATE:
            return _errors(condition, state, changed_at, now)
        case Metric.OLDEST_WAIT:
            return _oldest(state, changed_at, now)
        case Metric.TTFT_P95:
            return _ttft(condition, state, changed_at, now)


def _ended(condition: Condition, state: State, changed_at: float, now: float) -> list[State]:
    since = max(changed_at, now - condition.for_s)
    return [task for task in state.get("tasks") or [] if (task.get("finished_at") or 0.0) >= since]


def _errors(condition: Condition, state: State, changed_at: float, now: float) -> Reading:
    ended = [task for task in _ended(condition, state, changed_at, now) if task.get("reason") != "cancelled"]
    wrong = sum(task.get("reason") == "error" for task in ended)
    return Reading(wrong / len(ended) if ended and len(ended) >= condition.samples else None, len(ended), wrong)


def _oldest(state: State, changed_at: float, now: float) -> Reading:
    queue = state.get("queue") or {}
    waits = [queue["oldest_s"]] if queue.get("depth") and queue.get("oldest_s") is not None else []
    for slot in state.get("slots") or []:
        if slot.get("state") in ("waiting", "queued", "held"):
            last = [slot.get(name) for name in ("submitted_at", "since")]
            waits.append(now - max([moment for moment in last if moment is not None], default=now))
    # A wait that began before the change counts from it on: what came before is none of its doing.
    return Reading(min(max(waits), max(0.0, now - changed_at)) if waits else 0.0, len(waits))


def _ttft(condition: Condition, state: State, changed_at: float, now: float) -> Reading:
    known = [_first_token(task) for task in _ended(condition, state, changed_at, now) if _began_after(task, changed_at)]
    for slot in state.get("slots") or []:
        if slot.get("task") is None or not _began_after(slot, changed_at):
            continue
        known.append(
            _first_token(slot) if slot.get("first_token_at") is not None else _still(now - slot["submitted_at"], condition.over)
        )
    times = sorted(time for time in known if time is not None)
    return Reading(percentile(times, 0.95) if len(times) >= condition.samples else None, len(times))


def _began_after(task: State, changed_at: float) -> bool:
    return (task.get("submitted_at") or 0.0) >= changed_at


def _first_token(task: State) -> float | None:
    first = task.get("first_token_at")
    return None if first is None else max(0.0, float(first) - float(task["submitted_at"]))


def _still(waits: float, over: float) -> float | None:
    return waits if waits > over else None


def percentile(times: Sequence[float], share: float) -> float | None:
    """Nearest rank; `times` ascending."""
    return times[math.ceil(share * len(times)) - 1] if times else None


def amount(metric: Metric, value: float) -> str:
    return f"{value * 100:.3g} %" if metric is Metric.ERROR_RATE else seconds(value)


def seconds(value: float) -> str:
    """ "0.3 s", "12 s", "4 min"."""
    return f"{value:.2g} s" if value < 10 else duration(value)


def sentence(condition: Condition, reading: Reading) -> str:
    assert reading.value is not None
    metric, told = condition.metric, amount(condition.metric, reading.value)
    limit = amount(metric, condition.over)
    if metric is Metric.ERROR_RATE:
        share = f"{reading.of} of {reading.samples} requests"
        return f"error rate {told} in the last {seconds(condition.for_s)} ({share}), over {limit}"
    if metric is Metric.OLDEST_WAIT:
        return f"the oldest wait is {told}, over {limit} for {seconds(condition.for_s)}"
    return f"p95 TTFT {told} in the last {seconds(condition.for_s)} ({reading.samples} requests), over {limit}"


def words(condition: Condition) -> str:
    """ "error rate over 5 % in 60 s, from 20 requests on"."""
    label, limit = DEFINITIONS[condition.metric].label, amount(condition.metric, condition.over)
    if condition.metric is Metric.OLDEST_WAIT:
        return f"{label.lower()} over {limit} for {seconds(condition.for_s)}"
    label = label if label[1].isdigit() else label.lower()
    return f"{label} over {limit} in {seconds(condition.for_s)}, from {condition.samples} requests on"
