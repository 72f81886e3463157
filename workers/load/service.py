"""How evenly requests were served, kept so that it adds up over shards: tokens, waits, and the longest stretch without a token.

Tokens computed and waits are sums and largest values, so they are exact. For the longest stretch two things are kept:

- `spans`: the times in which any of the requests was under way, exact.
- the silences: stretches longer than `RESOLUTION_S` in which none of them got a token. Those of two shards together are what both
  have in common.

The max service gap (docs/metrics.md) is then the longest piece of a silence within a span: exact where it is at least the
resolution, and below it told as the resolution. Beyond MOST tokens' moments the resolution doubles; beyond MOST spans, which only
a load of hardly any concurrency has, the gap is unknown. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workers.analysis.fair import longest_in
from workers.analysis.requests import Times

type Json = dict[str, Any]
type Stretch = tuple[float, float]

RESOLUTION_S = 0.010
MOST = 65_536
WHOLE: list[Stretch] = [(-math.inf, math.inf)]


class Service:
    """Of a group of requests: one stream, one client, or all."""

    def __init__(self) -> None:
        self.known = False  # whether anybody counted tokens
        self.tokens = 0
        self.waits_told = True  # the server told the wait of each that ended well
        self.told_wait = self.client_wait = -math.inf
        self.resolution_s = RESOLUTION_S
        self.spans: list[Stretch] | None = []
        self._moments: dict[int, Stretch] = {}  # bin of time -> first and last token in it
        self._silences: list[Stretch] = WHOLE  # of what was merged in

    def add(self, row: Times) -> None:
        if row.n_prompt is not None or row.n_generated is not None:
            self.known = True
            self.tokens += (row.n_prompt or 0) - (row.n_cached or 0) + (row.n_generated or 0)
        self.waits_told = self.waits_told and not (row.ok and row.wait_s is None)
        end_s = None if row.done_at is None else row.done_at - row.sent_at
        self.told_wait = max(self.told_wait, _first(row.wait_s, end_s))
        self.client_wait = max(self.client_wait, _first(row.ttft_s, end_s))
        if row.done_at is not None:
            self._add_span((row.sent_at, row.done_at))
        self._add_tokens(row.tokens_at)

    def _add_tokens(self, tokens_at: Sequence[float]) -> None:
        """As quick as it can be: it runs in the generator's loop, for each token of each request."""
        moments, resolution_s = self._moments, self.resolution_s
        for at in tokens_at:
            place = int(at / resolution_s)  # times are long after 1970, so this is the floor
            seen = moments.get(place)
            if seen is None:
                moments[place] = (at, at)
            elif at > seen[1]:
                moments[place] = (seen[0], at)
            elif at < seen[0]:
                moments[place] = (at, seen[1])
        while len(self._moments) > MOST:
            self._coarsen()

    def _coarsen(self) -> None:
        self.resolution_s *= 2.0
        coarse: dict[int, Stretch] = {}
        for place, (first, last) in self._moments.items():
            before = coarse.get(place >> 1, (first, last))
            coarse[place >> 1] = (min(before[0], first), max(before[1], last))
        self._moments = coarse

    def _add_span(self, span: Stretch) -> None:
        if self.spans is None:
            return
        low = bisect_left(self.spans, span[0], key=lambda each: each[1])
        high = bisect_right(self.spans, span[1], key=lambda each: each[0])
        if low < high:
            span = (min(span[0], self.spans[low][0]), max(span[1], self.spans[high - 1][1]))
        self.spans[low:high] = [span]
        if len(self.spans) > MOST:
            self.spans = None

    def silences(self) -> list[Stretch]:
        """In order; the first one has no beginning and the last one no end."""
        found: list[Stretch] = []
        before = -math.inf
        for _, (first, last) in sorted(self._moments.items()):
            if first - before > self.resolution_s:
                found.append((before, first))
            before = last
        return _common([*found, (before, math.inf)], self._silences, self.resolution_s)

    def merge(self, other: Service) -> None:
        self.known = self.known or other.known
        self.tokens += other.tokens
        self.waits_told = self.waits_told and other.waits_told
        self.told_wait = max(self.told_wait, other.told_wait)
        self.client_wait = max(self.client_wait, other.client_wait)
        self.resolution_s = max(self.resolution_s, other.resolution_s)
        self._silences = _common(self.silences(), other.silences(), self.resolution_s)
        self._moments = {}
        if other.spans is None:
            self.spans = None
        for span in other.spans or ():
            self._add_span(span)

    # -- figures ------------------------------------------------------------------------------------------------------

    @property
    def served(self) -> int | None:
        """As `workers.analysis.fair.served`."""
        return self.tokens if self.known else None

    @property
    def wait_s(self) -> float | None:
        """As `workers.analysis.fair.longest_wait`."""
        value = self.told_wait if self.waits_told else self.client_wait
        return None if value == -math.inf else value

    @property
    def gap_s(self) -> float | None:
        """As `workers.analysis.fair.service_gap`, at least the resolution; None of nothing, and where it is unknown."""
        if not self.spans:
            return None
        return max(self.resolution_s, longest_in(self.spans, self.silences()))

    # -- over wires ---------------------------------------------------------------------------------------------------

    def as_json(self) -> Json:
        return {
            "tokens": self.served,
            "waits_told": self.waits_told,
            "told_wait": _finite(self.told_wait),
            "client_wait": _finite(self.client_wait),
            "resolution_s": self.resolution_s,
            "spans": self.spans,
            "silences": [[_finite(first), _finite(last)] for first, last in self.silences()],
        }

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Service:
        found = cls()
        found.known, found.tokens = given["tokens"] is not None, int(given["tokens"] or 0)
        found.waits_told, found.resolution_s = bool(given["waits_told"]), float(given["resolution_s"])
        found.told_wait, found.client_wait = (_number(given[name], -math.inf) for name in ("told_wait", "client_wait"))
        found.spans = None if given["spans"] is None else [(float(first), float(last)) for first, last in given["spans"]]
        found._silences = [(_number(first, -math.inf), _number(last, math.inf)) for first, last in given["silences"]]
        return found


def _common(one: Iterable[Stretch], other: Iterable[Stretch], least_s: float) -> list[Stretch]:
    """The stretches that are in both, as far as they are longer than `least_s`. Both in order."""
    ones, others, found = list(one), list(other), []
    place = beside = 0
    while place < len(ones) and beside < len(others):
        first, last = max(ones[place][0], others[beside][0]), min(ones[place][1], others[beside][1])
        if last - first > least_s:
            found.append((first, last))
        if ones[place][1] < others[beside][1]:
            place += 1
        else:
            beside += 1
    return found


def _first(value: float | None, other: float | None) -> float:
    return value if value is not None else other if other is not None else -math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any, missing: float) -> float:
    return missing if value is None else float(value)
