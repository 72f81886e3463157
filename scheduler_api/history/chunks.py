"""A few seconds of a server as bytes, and back. Pure.

Iterations are written in columns; what repeats from batch to batch (who was in it, who was skipped and why) is written once and
pointed at, so that a server that only generates costs some 10 bytes an iteration. Times are kept to the microsecond.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
class _Run:
    """Neighbouring iterations, the first of them and what they add up to."""

    first: Json
    last: int
    end: float
    n: int
    prompt: dict[int, int]
    gen: dict[int, int]

    def take(self, other: _Run) -> None:
        self.last, self.end, self.n = other.last, other.end, self.n + other.n
        for mine, more in ((self.prompt, other.prompt), (self.gen, other.gen)):
            for slot, tokens in more.items():
                mine[slot] = mine.get(slot, 0) + tokens

    def as_json(self) -> Json:
        if self.n == 1:
            return self.first
        return {
            "i": self.first["i"],
            "i_to": self.last,
            "t": self.first["t"],
            "dur_ms": round((self.end - self.first["t"]) * 1000, 3),
            "prompt": [list(pair) for pair in self.prompt.items()],
            "gen": [list(pair) for pair in self.gen.items()],
            "merged": self.n,
        }


@dataclass(slots=True)
class Merger:
    """Takes iterations in order and keeps at most `most`: `factor` neighbours are merged, twice as many each time it is full.

    Merged ones cover no pause of PAUSE_S and no restart, as long as pauses leave room for that.
    """

    most: int
    factor: int = 1
    runs: list[_Run] = field(default_factory=list)

    @property
    def kept(self) -> list[Json]:
        return [run.as_json() for run in self.runs]

    def add(self, iteration: Json, end: float) -> None:
        """`end`: as `end_of` has it."""
        i, last = iteration["i"], self.runs[-1] if self.runs else None
        if last is not None and last.n < self.factor and i > last.last and iteration["t"] - last.end < PAUSE_S:
            last.last, last.end, last.n = i, end, last.n + 1
            for mine, more in ((last.prompt, iteration["prompt"]), (last.gen, iteration["gen"])):
                for slot, tokens in more:
                    mine[slot] = mine.get(slot, 0) + tokens
            return
        self.runs.append(_Run(iteration, i, end, 1, dict(iteration["prompt"]), dict(iteration["gen"])))
        if len(self.runs) > self.most:
            self._halve()

    def _halve(self) -> None:
        self.factor *= 2
        self._pair(
            lambda one, two: one.n + two.n <= self.factor and two.first["i"] > one.last and two.first["t"] - one.end < PAUSE_S
        )
        if len(self.runs) > self.most * 3 // 4:  # pauses all over: they are covered then
            self._pair(lambda one, two: True)

    def _pair(self, may: Callable[[_Run, _Run], bool]) -> None:
        before, self.runs, paired = self.runs, [], False
        for run in before:
            if self.runs and not paired and may(self.runs[-1], run):
                self.runs[-1].take(run)
                paired = True
            else:
                self.runs.append(run)
                paired = False
