"""How evenly a block's requests were served. Pure; docs/metrics.md defines each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workers.analysis.naming import CLIENT, Key
from workers.analysis.numbers import median
from workers.analysis.requests import Times, grouped


def jain(values: Sequence[float]) -> float | None:
    """(sum x)^2 / (n sum x^2): Jain, Chiu and Hawe (1984). None of fewer than two values, or when all are 0."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares > 0 else None


def service_gap(rows: Sequence[Times]) -> float | None:
    """Seconds: the longest stretch in which one of these requests was under way and none of them got a token.

    A stretch begins with the first request sent, with a token, or ends where none is under way any more; a request without an
    end is left out. None of nothing.
    """
    spans = sorted((row.sent_at, row.done_at) for row in rows if row.done_at is not None)
    tokens = sorted(at for row in rows for at in row.tokens_at)
    longest: float | None = None
    place = 0
    for start, end in _merged(spans):
        before = start
        while place < len(tokens) and tokens[place] <= end:
            if tokens[place] >= start:
                longest = max(longest or 0.0, tokens[place] - before)
                before = tokens[place]
            place += 1
        longest = max(longest or 0.0, end - before)
    return longest


def longest_in(spans: Sequence[tuple[float, float]], silences: Sequence[tuple[float, float]]) -> float:
    """Seconds: the longest piece of a silence that lies within a span. Both in order and without overlaps; 0 where none does."""
    longest, place = 0.0, 0
    for start, end in spans:
        while place < len(silences) and silences[place][1] <= start:
            place += 1
        within = place
        while within < len(silences) and silences[within][0] < end:
            first, last = silences[within]
            longest, within = max(longest, min(last, end) - max(first, start)), within + 1
    return longest


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def longest_wait(rows: Sequence[Times]) -> float | None:
    """Seconds until the first prompt token entered a batch where the server tells so of all that ended well, else until the first
    token was read; a request that never got that far waited until its end.
    """
    told = all(row.wait_s is not None for row in rows if row.ok)
    waits = [_wait(row, told) for row in rows]
    return max((wait for wait in waits if wait is not None), default=None)


def _wait(row: Times, told: bool) -> float | None:
    value = row.wait_s if told else row.ttft_s
    if value is not None:
        return value
    return None if row.done_at is None else row.done_at - row.sent_at


def slowdown(rows: Sequence[Times], alone_s: float | None) -> float | None:
    """The median E2E over that of a typical request of the stream alone on the server; None where either is unknown."""
    times = [row.e2e_s for row in rows if row.ok and row.e2e_s is not None]
    return median(times) / alone_s if times and alone_s else None


def served(rows: Sequence[Times]) -> int | None:
    """Tokens computed for these requests: prompt tokens that no cache held, and generated ones. None when nobody counted them."""
    known = [row for row in rows if row.n_prompt is not None or row.n_generated is not None]
    if not known:
        return None
    return sum((row.n_prompt or 0) - (row.n_cached or 0) + (row.n_generated or 0) for row in known)


def fairness(rows: Sequence[Times], alone: Mapping[str, float]) -> dict[Key, float]:
    """By stream and client: gap, wait, and of streams slowdown; of the block: Jain's indices and the oldest wait.

    What would say nothing is not there: an index over one, a slowdown of a stream whose time alone is unknown.
    """
    streams = grouped(rows, lambda row: row.stream)
    clients = {f"{CLIENT}{name}": mine for name, mine in grouped(rows, lambda row: row.client).items() if name}
    slowdowns = {name: slowdown(mine, alone.get(name)) for name, mine in streams.items()}
    found: dict[Key, float | None] = {}
    for who, mine in {**streams, **clients}.items():
        found[who, "gap"], found[who, "wait"] = service_gap(mine), longest_wait(mine)
    found |= {(name, "slowdown"): value for name, value in slowdowns.items()}
    found["", "jain_clients"] = _jain_of(clients)
    found["", "jain_streams"] = _jain_of(streams)
    known = [value for value in slowdowns.values() if value is not None]
    found["", "jain_slowdown"] = jain(known) if len(known) == len(streams) else None
    found["", "oldest_wait"] = longest_wait(rows)
    return {key: value for key, value in found.items() if value is not None}


def _jain_of(groups: Mapping[str, Sequence[Times]]) -> float | None:
    tokens = [served(rows) for rows in groups.values()]
    return None if None in tokens else jain([float(each) for each in tokens if each is not None])
