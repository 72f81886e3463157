"""A run's requests one by one: their values for distributions and points of pairs, and their rows a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.db.models import Count

from workers.load.reading import Outcome
from workers.models import Block, Run, Sample

#: measure -> the columns that it is made of
COLUMNS = {
    "ttft": ("ttft_s",),
    "e2e": ("wall_s",),
    "tpot": ("wall_s", "ttft_s", "n_generated"),
    "itl": ("chunks_ms",),
}

type Values = dict[str, dict[str, dict[int, list[float]]]]


def by_stream(run: Run, measure: str) -> Values:
    """Stream -> arm -> pair -> seconds of each request that counts and ended well (ITL: of each gap), in finished blocks.

    Streams in the order in which they first sent. KeyError on a measure that is none of COLUMNS.
    """
    made = MAKERS[measure]
    rows = run.samples.filter(pair__gt=0, counted=True, outcome="ok", block__finished_at__isnull=False)
    found: Values = defaultdict(lambda: {"A": defaultdict(list), "B": defaultdict(list)})
    columns = ("role", "arm", "pair", *COLUMNS[measure])
    for role, arm, pair, *values in rows.order_by("block__index", "sent_at").values_list(*columns):
        found[role][arm][pair].extend(made(*values))
    return {role: {arm: dict(pairs) for arm, pairs in arms.items()} for role, arms in found.items()}


def _one(value: float | None) -> Iterator[float]:
    if value is not None:
        yield value


def _tpot(wall_s: float | None, ttft_s: float | None, n_generated: int | None) -> Iterator[float]:
    if wall_s is not None and ttft_s is not None and n_generated is not None and n_generated > 1:
        yield (wall_s - ttft_s) / (n_generated - 1)


def _gaps(chunks_ms: list[float]) -> Iterator[float]:
    for before, after in pairwise(chunks_ms):
        yield (after - before) / 1000.0


MAKERS: dict[str, Callable[..., Iterator[Any]]] = {"ttft": _one, "e2e": _one, "tpot": _tpot, "itl": _gaps}


FILTERS = {"stream": "role", "arm": "arm", "outcome": "outcome", "pair": "pair"}


@dataclass(frozen=True, slots=True)
class SamplePage:
    """`samples` of the page `number` (from 1) of `pages`; `count` are left by the filters, `total` are there."""

    samples: tuple[Sample, ...]
    number: int
    pages: int
    count: int
    total: int


def sample_page(run: Run, wanted: Mapping[str, str], number: int, size: int) -> SamplePage:
    """By time of sending. `wanted`: a value for some of FILTERS; one that no sample has leaves none."""
    rows = run.samples.all()
    total = rows.count()
    for name, column in FILTERS.items():
        if value := wanted.get(name, ""):
            rows = rows.filter(**{column: value}) if name != "pair" or value.isdigit() else rows.none()
    count = rows.count()
    pages = max(1, -(-count // size))
    number = min(max(number, 1), pages)
    listed = rows.defer("chunks_ms").order_by("block__index", "sent_at")
    return SamplePage(tuple(listed[(number - 1) * size : number * size]), number, pages, count, total)


def sample_choices(run: Run) -> dict[str, list[str]]:
    """What the samples of a run can be filtered by: the values that are there, for each of FILTERS but the pair."""
    columns = {name: column for name, column in FILTERS.items() if name != "pair"}
    rows = list(run.samples.order_by().values_list(*columns.values()).annotate(Count("id")))
    return {name: sorted({str(row[place]) for row in rows if row[place]}) for place, name in enumerate(columns)}


def sample_counts(run: Run) -> dict[str, int]:
    """How many samples there are: "total", "counted" (part of the result), "left_out" (of pairs that a restart cut) and "failed",
    by no doing of the run itself."""
    total, counted, left_out, failed = 0, 0, 0, 0
    cut = set(run.blocks.filter(interrupted=True).values_list("pair", flat=True))
    for pair, is_counted, ok, role, outcome, number in (
        run.samples.order_by().values_list("pair", "counted", "ok", "role", "outcome").annotate(Count("id"))
    ):
        total += number
        if pair and is_counted and role != "warm":
            counted += number if pair not in cut else 0
            left_out += number if pair in cut else 0
        failed += 0 if ok or outcome in (Outcome.STOPPED, Outcome.SKIPPED) else number
    return {"total": total, "counted": counted, "left_out": left_out, "failed": failed}


def blocks_of(run: Run) -> list[Block]:
    """In their order, without their timelines."""
    return list(run.blocks.defer("timeline").order_by("index"))
