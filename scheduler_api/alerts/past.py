"""A rule against the recorded past, in words: the last minutes from the detail, 30 days from the rollups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic, time
from typing import Any

from scheduler_api import live
from scheduler_api.alerts import backtest
from scheduler_api.alerts.kinds import Kind, Spec
from scheduler_api.health import duration
from scheduler_api.history import detail
from scheduler_api.history.rollups import KEPT_S
from scheduler_api.models import Rollup, Server

DETAIL_S = 15 * 60
#: Detail is read for as long as this; the servers that are left are named.
BUDGET_S = 8.0
BLIND = "It tells of no batches, so this cannot be told of its past."
#: What the sums of a minute cannot tell, by kind.
CANNOT = {
    Kind.DOWN: "Rollups do not tell a server that was down from one that nobody watched.",
    Kind.NOT_SERVING: "A long stall of one slot and a standstill of all look alike there.",
    Kind.STUCK_SLOT: "A stall there may have been a wait for others, and each step has its longest stall alone.",
    Kind.STARVING: "They do not tell whether others were served meanwhile, and each step has its longest stall alone.",
    Kind.QUEUE_AGE: "Rollups keep how many waited, not for how long.",
    Kind.COHORT_HOLD: "Rollups keep no holds.",
    Kind.OBSERVER_LOST: "Rollups do not tell an observer that was gone from a server that was down.",
    Kind.GUARD_RAIL: "What guard rails did stands in the audit.",
}
_STALLS = {Kind.NOT_SERVING: 60.0, Kind.STUCK_SLOT: None, Kind.STARVING: None}

type Row = tuple[int, int, float, float | None, int | None]


@dataclass(slots=True)
class Past:
    """`minutes` and `days`: a sentence for each server, under its name. `cannot`: what the second cannot tell."""

    minutes: list[tuple[str, str]] = field(default_factory=list)
    days: list[tuple[str, str]] = field(default_factory=list)
    cannot: str = ""
    left_out: list[str] = field(default_factory=list)


def test(rule: Spec, servers: Sequence[Server]) -> Past:
    past, began = Past(cannot=CANNOT[rule.kind]), monotonic()
    if rule.kind is Kind.GUARD_RAIL:
        return past
    for server in servers:
        if monotonic() - began > BUDGET_S:
            past.left_out.append(server.name)
            continue
        past.minutes.append((server.name, _minutes(rule, server)))
        past.days.append((server.name, _days(rule, server)))
    return past


def _minutes(rule: Spec, server: Server) -> str:
    record = _record(server.pk, time())
    if record is None:
        return "No detail is kept of it."
    found = backtest.opened(rule, record)
    if found is None:
        return BLIND
    return f"{would(found)} in the last {duration(record.end - record.start)}."


def would(found: Sequence[backtest.Span]) -> str:
    """ "It would have opened 4 times, longest 32 s"."""
    if not found:
        return "It would not have opened"
    longest = duration(max(end - start for start, end in found))
    if len(found) == 1:
        return f"It would have opened once, for {longest},"
    return f"It would have opened {len(found)} times, longest {longest},"


def _record(server_id: int, now: float) -> backtest.Record | None:
    """On the server's clock, which the chunks are in."""
    entries = detail.index(server_id)
    last = entries[-1].end if entries else now
    end = now if abs(last - now) < 60 else last
    read = detail.read(server_id, end - DETAIL_S, end)
    if read.oldest is None and not read.tasks:
        return None
    start = max(end - DETAIL_S, read.oldest if read.oldest is not None else end)
    state: dict[str, Any] = live.read_many([server_id]).get(server_id) or {}
    told = bool(read.iterations) or "iterations" not in (state.get("missing") or {})

    def cap_s(t: float) -> float | None:
        cap = (detail.policy_at(read, t) or {}).get("barrier_max_hold_ms")
        return cap / 1000 if cap is not None else None

    return backtest.Record(start, end, read.iterations, read.tasks, read.gaps, cap_s, told)


def _days(rule: Spec, server: Server) -> str:
    rows: list[Row] = list(
        Rollup.objects.filter(server=server, t__gte=int(time()) - KEPT_S)
        .order_by("t")
        .values_list("t", "step_s", "observed_s", "worst_stall_s", "queue_max")
    )
    return days(rule, rows)


def days(rule: Spec, rows: Sequence[Row]) -> str:
    """`rows`: (t, step_s, observed_s, worst_stall_s, queue_max), oldest first."""
    if not rows:
        return "No rollups are kept of it."
    span = duration_of_days(rows[-1][0] + rows[-1][1] - rows[0][0])
    if rule.kind in (Kind.DOWN, Kind.OBSERVER_LOST):
        return _unwatched(rows, span)
    if rule.kind is Kind.QUEUE_AGE:
        queued = [row[4] for row in rows if row[4]]
        most = f", at most {max(queued)} at once" if queued else ""
        return f"Tasks queued in {len(queued)} of {len(rows)} steps of {span}{most}."
    if rule.kind is Kind.GUARD_RAIL:
        return CANNOT[rule.kind]
    if rule.kind is Kind.COHORT_HOLD:
        return f"Nothing is known of the holds of {span}."
    limit = (_STALLS[rule.kind] or rule.threshold_s) + rule.for_s
    long = [(row[0], row[1], row[3]) for row in rows if row[3] is not None and row[3] > limit]
    if not long:
        return f"At no time: no stall of {span} was longer than {duration(limit)}."
    apart = 1 + sum(after[0] > before[0] + before[1] for before, after in pairwise(long))
    worst = duration(max(stall for _, _, stall in long))
    times = "once" if apart == 1 else f"{apart} times apart from each other"
    return f"At most {len(long)} of {len(rows)} steps of {span} had a stall over {duration(limit)}, {times}, the longest {worst}."


def _unwatched(rows: Sequence[Row], span: str) -> str:
    holes = [after[0] - before[0] - before[1] for before, after in pairwise(rows)]
    within = sum(max(0.0, step - observed) for _, step, observed, _, _ in rows)
    longest = max([hole for hole in holes if hole > 0], default=0)
    total = sum(hole for hole in holes if hole > 0) + within
    if total < 1:
        return f"It was seen up all of {span}."
    more = f", {duration_of_days(longest)} of that at a stretch" if longest else ""
    return f"For {duration_of_days(total)} of {span} it was not seen up{more}."


def duration_of_days(seconds: float) -> str:
    return f"{int(seconds // 86_400)} days" if seconds >= 2 * 86_400 else duration(seconds)
