"""Rollups in the database: written once a minute by the observer, read by the API. Never on the way of a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Min

from scheduler_api.history import rollups
from scheduler_api.history.rollups import COARSE_S, FINE_FOR_S, KEPT_S, MINUTE_S, Minute
from scheduler_api.history.tally import Json
from scheduler_api.models import PolicyChange, PolicyOutcome, Rollup

_FIELDS = tuple(field.name for field in Rollup._meta.concrete_fields if field.name not in ("id", "server", "step_s"))
#: Minutes made coarser in one transaction: an observer that comes back after days does not hold the database for long.
_AT_ONCE = 3000

type RunSource = Callable[[int, float, float], list[Json]]

#: Told by the layers above, which this one does not import: the experiment runs of a server between two times.
run_sources: list[RunSource] = []


def _row(rollup: Rollup) -> Json:
    return {name: getattr(rollup, name) for name in _FIELDS}


def write(server_id: int, minutes: Sequence[Minute], now: float) -> None:
    """Adds minutes to what is kept, and makes coarser or drops what is due, in one transaction. Raises DatabaseError.

    A minute that is kept already (the observer was started again in it) is added to.
    """
    rows: dict[int, list[Json]] = {}
    for minute in minutes:
        row = minute.row()
        rows.setdefault(row["t"], []).append(row)
    with transaction.atomic():
        for kept in Rollup.objects.filter(server_id=server_id, step_s=MINUTE_S, t__in=list(rows)):
            rows[kept.t].append(_row(kept))
        fresh = [each[0] if len(each) == 1 else rollups.added(each, t) for t, each in sorted(rows.items())]
        _put(server_id, MINUTE_S, fresh)
        _make_coarser(server_id, now)
        Rollup.objects.filter(server_id=server_id, t__lt=int(now) - KEPT_S).delete()


def _put(server_id: int, step_s: int, rows: Iterable[Json]) -> None:
    Rollup.objects.bulk_create(
        [Rollup(server_id=server_id, step_s=step_s, **row) for row in rows],
        update_conflicts=True,
        unique_fields=["server", "step_s", "t"],
        update_fields=[name for name in _FIELDS if name != "t"],
    )


def _make_coarser(server_id: int, now: float) -> None:
    """Ten whole minutes become one row once they are old enough."""
    until = int(now - FINE_FOR_S) // COARSE_S * COARSE_S
    old = Rollup.objects.filter(server_id=server_id, step_s=MINUTE_S, t__lt=until)
    rows = [_row(rollup) for rollup in old[:_AT_ONCE]]
    if len(rows) == _AT_ONCE:  # the last ten minutes may be cut off: they wait
        rows = [row for row in rows if row["t"] < rows[-1]["t"] // COARSE_S * COARSE_S]
    if not rows:
        return
    times = {row["t"] // COARSE_S * COARSE_S for row in rows}
    coarse = [_row(rollup) for rollup in Rollup.objects.filter(server_id=server_id, step_s=COARSE_S, t__in=times)]
    _put(server_id, COARSE_S, rollups.grouped([*coarse, *rows], COARSE_S))
    old.filter(t__lte=rows[-1]["t"]).delete()


def read(server_id: int, t_from: float, t_to: float, step_s: int | None = None) -> Json:
    """The history object of docs/protocol.md; the step is the smallest one, at least the one asked for, that the range allows."""
    rows = Rollup.objects.filter(server_id=server_id, t__gt=t_from - COARSE_S, t__lt=t_to)
    coarse = rows.filter(step_s=COARSE_S, t__gte=int(t_from) // COARSE_S * COARSE_S).exists()
    step = rollups.step_for(t_from, t_to, step_s, fine=not coarse)
    first = int(t_from) // step * step
    found = [_row(rollup) for rollup in rows.filter(t__gte=first)]
    points = [rollups.point(row, step) for row in rollups.grouped(found, step)]
    return {
        "from": t_from,
        "to": t_to,
        "step_s": step,
        "points": points,
        "marks": _marks(server_id, t_from, t_to, points),
        "runs": [run for source in run_sources for run in source(server_id, t_from, t_to)],
    }


def oldest(server_id: int) -> float | None:
    """When the first kept minutes of a server began; None without any."""
    first: int | None = Rollup.objects.filter(server_id=server_id).aggregate(first=Min("t"))["first"]
    return first


def _marks(server_id: int, t_from: float, t_to: float, points: Iterable[Json]) -> list[Json]:
    """Policy changes from the audit, and restarts to the step."""
    start, end = (datetime.fromtimestamp(t, UTC) for t in (t_from, t_to))
    changes = PolicyChange.objects.filter(server_id=server_id, outcome=PolicyOutcome.APPLIED, at__gte=start, at__lte=end)
    switched = [
        {
            "t": change.at.timestamp(),
            "iteration": change.effective_from_iteration,
            "kind": "policy",
            "text": ", ".join(
                f"{name.replace('_', ' ')}: {change.old.get(name)} to {value}" for name, value in change.changes.items()
            ),
            "by": change.actor_name,
            "version": change.version,
        }
        for change in changes
    ]
    restarted = [
        {
            "t": float(point["t"]),
            "iteration": None,
            "kind": "restart",
            "text": _times(point["restarts"]),
            "by": "",
            "version": None,
        }
        for point in points
        if point["restarts"]
    ]
    return sorted([*switched, *restarted], key=lambda mark: float(mark["t"]))


def _times(n: int) -> str:
    return "restarted" if n == 1 else f"restarted {n} times"
