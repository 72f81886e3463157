"""What is kept of a minute for 30 days, how minutes add up, and the points that pages draw. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_api.history import fairness, histogram
from scheduler_api.history.tally import OTHERS, Json, Tally

MINUTE_S = 60
COARSE_S = 600
#: Minutes are kept for two days, then ten of them as one for 30 days.
FINE_FOR_S = 48 * 3600
KEPT_S = 30 * 24 * 3600
TOP_CLIENTS = 20
STEPS = (60, 600, 3600, 6 * 3600, 24 * 3600)
MOST_POINTS = 1500


@dataclass(slots=True)
class Minute:
    """Sums of the minute that begins at `t`. `observed_s`: how much of it the server was seen to be up."""

    t: float
    tally: Tally = field(default_factory=Tally)
    observed_s: float = 0.0
    busy_s: float = 0.0
    queue_s: float = 0.0  # queue depth times seconds
    queue_max: int | None = None
    queue_seen_s: float = 0.0
    kv_used_max: int | None = None
    longest_wait_s: float = 0.0
    restarts: int = 0

    def saw(self, seconds: float, slots: Iterable[Json], queue: int | None, kv_used: int | None, wait_s: float) -> None:
        self.observed_s += seconds
        self.busy_s += seconds * sum(slot["state"] != "idle" for slot in slots)
        if queue is not None:
            self.queue_s += queue * seconds
            self.queue_seen_s += seconds
            self.queue_max = max(queue, self.queue_max or 0)
        if kv_used is not None:
            self.kv_used_max = max(kv_used, self.kv_used_max or 0)
        self.longest_wait_s = max(self.longest_wait_s, wait_s)

    def row(self) -> Json:
        """The fields of a Rollup, without server and step."""
        tally = self.tally
        named = sorted((name for name in tally.clients if name != OTHERS), key=lambda name: (-tally.clients[name], name))
        clients = {name: tally.clients[name] for name in named[:TOP_CLIENTS]}
        rest = sum(tally.clients.values()) - sum(clients.values())
        return {
            "t": int(self.t),
            "observed_s": round(min(self.observed_s, MINUTE_S), 3),
            "prompt_tokens": sum(prompt for prompt, _ in tally.slots.values()),
            "generated_tokens": sum(generated for _, generated in tally.slots.values()),
            "cached_tokens": tally.cached_tokens,
            "asked_tokens": tally.prompt_tokens,
            "iterations": tally.iterations,
            "busy_s": round(self.busy_s, 3),
            "queue_max": self.queue_max,
            "queue_mean": round(self.queue_s / self.queue_seen_s, 4) if self.queue_seen_s else None,
            "worst_stall_s": round(max(tally.worst_gap.seconds, self.longest_wait_s), 4),
            "stalls": tally.stalls,
            "kv_used_max": self.kv_used_max,
            "tasks": dict(tally.reasons),
            "bounds": histogram.VERSION,
            "ttft": histogram.dump(tally.ttft),
            "itl": histogram.dump(tally.itl),
            "slots": {str(slot): list(tokens) for slot, tokens in sorted(tally.slots.items())},
            "clients": clients | ({"others": rest} if rest else {}) if "others" not in clients else clients,
            "restarts": self.restarts,
        }


_SUMS = ("prompt_tokens", "generated_tokens", "cached_tokens", "asked_tokens", "iterations", "stalls", "restarts")
_TIMES = ("observed_s", "busy_s")
_LARGEST = ("queue_max", "worst_stall_s", "kv_used_max")


def added(rows: Sequence[Json], t: int) -> Json:
    """One row in the place of several, that begins at `t`. Counts of other bins than the present ones are left out."""
    clients = _counts(row["clients"] for row in rows)
    top = sorted(clients.keys() - {"others"}, key=lambda name: (-clients[name], name))[:TOP_CLIENTS]
    rest = sum(clients.values()) - sum(clients[name] for name in top)
    slots: dict[str, list[int]] = {}
    for row in rows:
        for slot, (prompt, generated) in row["slots"].items():
            before = slots.get(slot, [0, 0])
            slots[slot] = [before[0] + prompt, before[1] + generated]
    return {
        "t": t,
        **{name: sum(row[name] for row in rows) for name in _SUMS},
        **{name: round(sum(row[name] for row in rows), 3) for name in _TIMES},
        **{name: max((row[name] for row in rows if row[name] is not None), default=None) for name in _LARGEST},
        "queue_mean": _queue_mean(rows),
        "tasks": _counts(row["tasks"] for row in rows),
        "bounds": histogram.VERSION,
        **{name: histogram.dump(_histogram(rows, name)) for name in ("ttft", "itl")},
        "slots": slots,
        "clients": {name: clients[name] for name in top} | ({"others": rest} if rest else {}),
    }


def _counts(many: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in many:
        for name, n in each.items():
            found[name] = found.get(name, 0) + n
    return found


def _histogram(rows: Iterable[Json], name: str) -> histogram.Counts:
    found: histogram.Counts = {}
    for row in rows:
        if row["bounds"] == histogram.VERSION:
            histogram.add(found, histogram.load(row[name]))
    return found


def _queue_mean(rows: Iterable[Json]) -> float | None:
    """Weighted by the time observed."""
    told = [(row["queue_mean"], row["observed_s"]) for row in rows if row["queue_mean"] is not None]
    seconds = sum(weight for _, weight in told)
    return round(sum(value * weight for value, weight in told) / seconds, 4) if seconds else None


def grouped(rows: Iterable[Json], step_s: int) -> list[Json]:
    """Rows added up into stretches of `step_s` that begin at its multiples, in order of time."""
    groups: dict[int, list[Json]] = {}
    for row in rows:
        groups.setdefault(int(row["t"] // step_s * step_s), []).append(row)
    return [added(each, t) for t, each in sorted(groups.items())]


def step_for(t_from: float, t_to: float, wanted: int | None, fine: bool) -> int:
    """The smallest step, at least the one wanted, that gives no more than MOST_POINTS. `fine`: minutes exist for the range."""
    least = max(wanted or 0, MINUTE_S if fine else COARSE_S, (t_to - t_from) / MOST_POINTS)
    return next((step for step in STEPS if step >= least), STEPS[-1])


def point(row: Json, step_s: int) -> Json:
    """The figures of a row that pages draw; null where nothing was observed or told."""
    seconds = row["observed_s"]
    rates = {
        "prompt_tps": _per(row["prompt_tokens"], seconds),
        "gen_tps": _per(row["generated_tokens"], seconds),
        "busy": _per(row["busy_s"], seconds),
    }
    told = (
        "prompt_tokens",
        "generated_tokens",
        "cached_tokens",
        "iterations",
        "queue_max",
        "queue_mean",
        "worst_stall_s",
        "stalls",
    )
    return {
        "t": row["t"],
        "step_s": step_s,
        "observed_s": seconds,
        **rates,
        **{name: row[name] for name in told},
        "kv_used_max": row["kv_used_max"],
        "cache_hit": round(row["cached_tokens"] / row["asked_tokens"], 4) if row["asked_tokens"] else None,
        "tasks": sum(row["tasks"].values()),
        "reasons": row["tasks"],
        "ttft": fairness.spread(_histogram([row], "ttft")),
        "itl": fairness.spread(_histogram([row], "itl")),
        "jain_slots": _jain([sum(tokens) for slot, tokens in row["slots"].items() if int(slot) >= 0]),
        "jain_clients": _jain([n for name, n in row["clients"].items() if name != "others"]),
        "slots": {slot: sum(tokens) for slot, tokens in row["slots"].items()},
        "clients": row["clients"],
        "restarts": row["restarts"],
    }


def _per(value: float, seconds: float) -> float | None:
    return round(value / seconds, 3) if seconds > 0 else None


def _jain(shares: list[int]) -> float | None:
    found = fairness.jain(shares)
    return None if found is None else round(found, 4)


def coarse(rows: Sequence[Json]) -> list[tuple[Json, list[Any]]]:
    """For rows of a minute, each row of ten minutes with the times of those that it stands for."""
    times: dict[int, list[Any]] = {}
    for row in rows:
        times.setdefault(int(row["t"] // COARSE_S * COARSE_S), []).append(row["t"])
    return [(row, times[row["t"]]) for row in grouped(rows, COARSE_S)]
