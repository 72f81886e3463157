"""A few seconds of a server as bytes, and back. Pure.

Iterations are written in columns; what repeats from batch to batch (who was in it, who was skipped and why) is written once and
pointed at, so that a server that only generates costs some 10 bytes an iteration. Times are kept to the microsecond.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson

type Json = dict[str, Any]

VERSION = 1
_LEVEL = 1  # a quarter more bytes than level 6, for a third of its time
_DURATIONS = ("plan_ms", "run_ms", "settle_ms")
_OPEN = ("client", "group", "state", "n_prompt", "n_cached", "n_processed", "n_generated", "n_predict")
_OPEN_TIMES = ("submitted_at", "first_visit_at", "prompt_done_at", "first_token_at")
#: A pause between two iterations longer than this is not covered by merged ones.
PAUSE_S = 0.5


@dataclass(slots=True)
class Chunk:
    """What was seen from `start` to `end`. `open`: the tasks in the slots at its end, in the shape of ended ones with
    `finished_at` null and the slot's `state`. `gaps`: [from, to, why] of times in which nothing was known of the server."""

    start: float
    end: float
    iterations: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)
    open: list[Json] = field(default_factory=list)
    marks: list[Json] = field(default_factory=list)
    gaps: list[list[Any]] = field(default_factory=list)
    policy: Json | None = None
    info: Json = field(default_factory=dict)

    @property
    def first(self) -> float:
        """From when on it tells something: a stream that is resumed tells of iterations before the chunk began."""
        return min([self.start, *(float(iteration["t"]) for iteration in self.iterations[:1])])


def open_task(slot: Json, freed: Mapping[int, float] | None = None) -> Json:
    """A slot's task in the shape of an ended one. `freed`: when each slot's last task ended."""
    begun = slot["submitted_at"] if slot["submitted_at"] is not None else slot["since"]
    assigned = None if begun is None else max(begun, (freed or {}).get(slot["id"], 0.0))
    told = {name: slot[name] for name in (*_OPEN, *_OPEN_TIMES)}
    return {"n": None, "i": None, "task": slot["task"], "slot": slot["id"], **told, "assigned_at": assigned, "finished_at": None}


def encode(chunk: Chunk) -> bytes:
    rests: dict[bytes, int] = {}
    of: list[int] = []
    told: list[Json] = []
    for iteration in chunk.iterations:
        rest = {name: value for name, value in iteration.items() if name not in ("i", "t", *_DURATIONS)}
        key = orjson.dumps(rest)
        if key not in rests:
            rests[key] = len(rests)
            told.append(rest)
        of.append(rests[key])
    times = [round(iteration["t"] * 1e6) for iteration in chunk.iterations]
    columns = {
        "i": _deltas([iteration["i"] for iteration in chunk.iterations]),
        "t": _deltas(times),
        **{name: [iteration[name] for iteration in chunk.iterations] for name in _DURATIONS},
        "of": of,
        "rests": told,
    }
    names = ("start", "end", "tasks", "open", "marks", "gaps", "policy", "info")
    body = {"v": VERSION, "iterations": columns, **{name: getattr(chunk, name) for name in names}}
    return zlib.compress(orjson.dumps(body), _LEVEL)


def decode(data: bytes) -> Chunk:
    """Raises ValueError for what is no chunk of this version."""
    try:
        body = orjson.loads(zlib.decompress(data))
        if body["v"] != VERSION:
            raise ValueError(f"a chunk of version {body['v']}")
        return Chunk(
            **{name: body[name] for name in body if name not in ("v", "iterations")}, iterations=_rows(body["iterations"])
        )
    except (zlib.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no chunk: {error}") from error


def _rows(columns: Json) -> list[Json]:
    """Iterations that share what repeats: they are to be read, not written."""
    rests, durations = columns["rests"], [columns[name] for name in _DURATIONS]
    numbers, times = _sums(columns["i"]), _sums(columns["t"])
    return [
        {"i": i, "t": t / 1e6, "plan_ms": plan, "run_ms": run, "settle_ms": settle, **rests[of]}
        for i, t, plan, run, settle, of in zip(numbers, times, *durations, columns["of"], strict=True)
    ]


def _deltas(values: Sequence[int]) -> list[int]:
    return [*values[:1], *(later - earlier for earlier, later in pairwise(values))]


def _sums(deltas: Iterable[int]) -> Iterator[int]:
    value = 0
    for delta in deltas:
        value += delta
        yield value


# Fewer iterations than there were


def end_of(iteration: Json) -> float:
    if "dur_ms" in iteration:
        return float(iteration["t"] + iteration["dur_ms"] / 1000)
    return float(iteration["t"] + sum(iteration[name] or 0.0 for name in _DURATIONS) / 1000)


@dataclass(slots=True)
class Merger:
    """Takes iterations in order and keeps at most `most`: neighbours are merged, twice as many each time it is full.

    Merged ones cover no pause of PAUSE_S and no restart, as long as pauses leave room for that.
    """

    most: int
    kept: list[Json] = field(default_factory=list)
    factor: int = 1

    def add(self, iteration: Json) -> None:
        last = self.kept[-1] if self.kept else None
        if last is not None and last.get("merged", 1) < self.factor and _follows(last, iteration):
            self.kept[-1] = merged(last, iteration)
        else:
            self.kept.append(iteration)
        if len(self.kept) > self.most:
            self._halve()

    def _halve(self) -> None:
        self.factor *= 2
        before, self.kept = self.kept, []
        for each in before:
            last = self.kept[-1] if self.kept else None
            if last is not None and last.get("merged", 1) + each.get("merged", 1) <= self.factor and _follows(last, each):
                self.kept[-1] = merged(last, each)
            else:
                self.kept.append(each)
        if len(self.kept) > self.most * 3 // 4:  # pauses all over: they are covered then
            pairs = [self.kept[at : at + 2] for at in range(0, len(self.kept), 2)]
            self.kept = [merged(*pair) if len(pair) == 2 else pair[0] for pair in pairs]


def _follows(earlier: Json, later: Json) -> bool:
    return bool(later["i"] > earlier["i"] and later["t"] - end_of(earlier) < PAUSE_S)


def merged(earlier: Json, later: Json) -> Json:
    """One iteration in the place of two neighbours, or of those that they stand for."""
    return {
        "i": earlier["i"],
        "i_to": later.get("i_to", later["i"]),
        "t": earlier["t"],
        "dur_ms": round((end_of(later) - earlier["t"]) * 1000, 3),
        "prompt": _summed(earlier["prompt"], later["prompt"]),
        "gen": _summed(earlier["gen"], later["gen"]),
        "merged": earlier.get("merged", 1) + later.get("merged", 1),
    }


def _summed(some: Iterable[list[int]], more: Iterable[list[int]]) -> list[list[int]]:
    tokens: dict[int, int] = {}
    for slot, n in (*some, *more):
        tokens[slot] = tokens.get(slot, 0) + n
    return [[slot, n] for slot, n in tokens.items()]
