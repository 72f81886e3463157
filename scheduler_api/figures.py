"""Rates, queue and stalls of one server over time, from what its slots were served. Pure: time comes in as an argument.

All times are the server's clock, Unix seconds.
- A rate is tokens computed in the last RATE_WINDOW_S of wall time, over that time; a batch's tokens count evenly over its
  duration. While slots work, the window ends with the last finished batch: the running one has not reported yet.
- A stall is a time during which a slot had work and got no token computed. The worst is taken over STALL_WINDOW_S, with
  those that still last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

BIN_S = 2.0
SPAN_S = 150.0
BINS = int(SPAN_S / BIN_S)
RATE_WINDOW_S = 2.0
STALL_WINDOW_S = 60.0
CELL_S = 0.05
_LEAST_WINDOW_S = 0.25
_KEPT_S = 4 * RATE_WINDOW_S

type Point = list[float | None]


@dataclass(frozen=True, slots=True)
class Service:
    """Tokens computed for one slot in one batch, or between two polls."""

    slot: int
    start: float
    end: float
    prompt: int
    generated: int


@dataclass(frozen=True, slots=True)
class Work:
    """A slot's work: which (a task), from when on, and whether the batch that runs now may serve it."""

    key: int | None
    since: float
    running: bool


def _bin(t: float) -> int:
    return int(t // BIN_S)


def _shares(start: float, end: float, width: float) -> Iterator[tuple[int, float]]:
    """(bin, share) for each bin of `width` that start..end touches; the shares add up to 1."""
    first, last = int(start // width), int(end // width)
    if first == last:
        yield first, 1.0
        return
    for index in range(first, last + 1):
        covered = min(end, (index + 1) * width) - max(start, index * width)
        if covered > 0:
            yield index, covered / (end - start)


@dataclass(slots=True)
class Series:
    """One value for each bin of BIN_S, over the last SPAN_S."""

    combine: Callable[[float, float], float]
    scale: float = 1.0
    bins: dict[int, float] = field(default_factory=dict)

    def add(self, t: float, value: float) -> None:
        index = _bin(t)
        self.bins[index] = self.combine(self.bins.get(index, 0.0), value)

    def spread(self, start: float, end: float, value: float) -> None:
        """Adds `value` in shares of the time that each bin has of start..end."""
        if start // BIN_S == end // BIN_S:
            self.add(end, value)
            return
        for index, share in _shares(max(start, end - SPAN_S), end, BIN_S):
            self.bins[index] = self.combine(self.bins.get(index, 0.0), value * share)

    def points(self, first: int, last: int, watched: set[int]) -> list[Point]:
        """[bin start, value], oldest first. A bin in which nobody watched and nothing was told of has the value None."""
        self.bins = {index: value for index, value in self.bins.items() if index >= first}
        return [[index * BIN_S, self._value(index, watched)] for index in range(first, last + 1)]

    def _value(self, index: int, watched: set[int]) -> float | None:
        value = self.bins.get(index)
        if value is None:
            return 0.0 if index in watched else None
        return round(value * self.scale, 2)


def _add(old: float, new: float) -> float:
    return old + new


@dataclass(slots=True)
class _Window:
    """Tokens of the last seconds in cells of CELL_S, for each slot (prompt, generated)."""

    cells: dict[int, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, service: Service) -> None:
        if service.start // CELL_S == service.end // CELL_S:
            tokens = self.cells.setdefault(int(service.end // CELL_S), {}).setdefault(service.slot, [0.0, 0.0])
            tokens[0] += service.prompt
            tokens[1] += service.generated
            return
        for index, share in _shares(max(service.start, service.end - _KEPT_S), service.end, CELL_S):
            tokens = self.cells.setdefault(index, {}).setdefault(service.slot, [0.0, 0.0])
            tokens[0] += service.prompt * share
            tokens[1] += service.generated * share

    def forget(self, before: float) -> None:
        oldest = int(before // CELL_S)
        if len(self.cells) > 2 * _KEPT_S / CELL_S:
            self.cells = {index: cell for index, cell in self.cells.items() if index >= oldest}

    def sums(self, start: float, end: float) -> dict[int, tuple[float, float]]:
        """For each slot the tokens of start..end, to the cell."""
        found: dict[int, tuple[float, float]] = {}
        for index in range(round(start / CELL_S), round(end / CELL_S)):
            for slot, (prompt, generated) in self.cells.get(index, {}).items():
                before = found.get(slot, (0.0, 0.0))
                found[slot] = (before[0] + prompt, before[1] + generated)
        return found


@dataclass(frozen=True, slots=True)
class _Stall:
    slot: int
    ended_at: float
    length: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens/s over the window: prompt and generated tokens of all slots, and both together of each slot that has work."""

    prompt: float
    generated: float
    slots: dict[int, float]


def _batches(services: Iterable[Service]) -> list[tuple[float, float, int, int]]:
    """(start, end, prompt, generated) of services in succession over the same time: those of one batch."""
    found: list[tuple[float, float, int, int]] = []
    for service in services:
        if found and found[-1][0] == service.start and found[-1][1] == service.end:
            start, end, prompt, generated = found[-1]
            found[-1] = (start, end, prompt + service.prompt, generated + service.generated)
        else:
            found.append((service.start, service.end, service.prompt, service.generated))
    return found


@dataclass(slots=True)
class Figures:
    """What a server's services add up to: `update` with each report, `watch` at each look, then read."""

    prompt: Series = field(default_factory=lambda: Series(_add, 1 / BIN_S))
    generated: Series = field(default_factory=lambda: Series(_add, 1 / BIN_S))
    queue: Series = field(default_factory=lambda: Series(max))
    stall: Series = field(default_factory=lambda: Series(max))
    watched: set[int] = field(default_factory=set)
    window: _Window = field(default_factory=_Window)
    stalls: deque[_Stall] = field(default_factory=deque)
    last_end: dict[int, float] = field(default_factory=dict)
    at_work: dict[int, Work] = field(default_factory=dict)
    horizon: float = 0.0

    def update(self, work: Mapping[int, Work], services: Iterable[Service]) -> None:
        """`services` in order of time; `work` as it stands after them."""
        before = self.at_work
        self.at_work = before | {slot: self._begun(slot, new, before.get(slot)) for slot, new in work.items()}
        services = list(services)
        for start, end, prompt, generated in _batches(services):
            if prompt:
                self.prompt.spread(start, end, prompt)
            if generated:
                self.generated.spread(start, end, generated)
        for service in services:
            self._serve(service)
        self.at_work = {slot: self.at_work[slot] for slot in work}

    def _begun(self, slot: int, new: Work, old: Work | None) -> Work:
        if old is not None and old.key == new.key:
            return Work(old.key, old.since, new.running)
        # Time before the slot was free is the queue's, not the slot's.
        return Work(new.key, max(new.since, self.last_end.get(slot, new.since)), new.running)

    def _serve(self, service: Service) -> None:
        self.window.add(service)
        work = self.at_work.get(service.slot)
        if work is not None and (length := service.start - self._waits_since(service.slot, work)) > 0:
            self._note_stall(_Stall(service.slot, service.start, length))
            self.stall.add(service.start, length)
        self.last_end[service.slot] = max(service.end, self.last_end.get(service.slot, service.end))
        self.horizon = max(self.horizon, service.end)

    def _note_stall(self, stall: _Stall) -> None:
        """Keeps those alone that can still become the worst of the window, longest first: a stall ends with each batch."""
        while self.stalls and self.stalls[-1].length <= stall.length:
            self.stalls.pop()
        self.stalls.append(stall)

    def _waits_since(self, slot: int, work: Work) -> float:
        return max(work.since, self.last_end.get(slot, work.since))

    def watch(self, now: float, queue_depth: int | None, *, tokens: bool = True, stalls: bool = True) -> None:
        """Notes that the server was seen at `now`, and what is true of it just then, as far as it tells of that at all."""
        if tokens:
            self.watched.add(_bin(now))
        if stalls:
            self.stall.add(now, max((length for _, length in self._open_stalls(now)), default=0.0))
        if queue_depth is not None:
            self.queue.add(now, float(queue_depth))

    def forget_work(self) -> None:
        """After a restart, or while the server is down: no slot is known to have work."""
        self.at_work = {}
        self.last_end = {}

    def _open_stalls(self, now: float) -> list[tuple[int, float]]:
        """A slot that runs is measured up to the last finished batch: it may be in the one that runs now."""
        return [
            (slot, max(0.0, (min(now, self.horizon) if work.running else now) - self._waits_since(slot, work)))
            for slot, work in self.at_work.items()
        ]

    def worst_stall(self, now: float) -> tuple[int | None, float]:
        """(slot, seconds); slot None when none waited."""
        while self.stalls and self.stalls[0].ended_at < now - STALL_WINDOW_S:
            self.stalls.popleft()
        ended = [(self.stalls[0].slot, self.stalls[0].length)] if self.stalls else []
        candidates = [*ended, *self._open_stalls(now)]
        slot, length = max(candidates, key=lambda pair: pair[1], default=(None, 0.0))
        return (slot, length) if length > 0 else (None, 0.0)

    def _window_end(self, now: float) -> float:
        return max(self.horizon, now - RATE_WINDOW_S) if self.at_work and self.horizon < now else now

    def rates(self, now: float) -> Rates:
        end = self._window_end(now)
        self.window.forget(end - _KEPT_S)
        sums = self.window.sums(end - RATE_WINDOW_S, end)
        prompt = sum(tokens for tokens, _ in sums.values()) / RATE_WINDOW_S
        generated = sum(tokens for _, tokens in sums.values()) / RATE_WINDOW_S
        slots = {slot: sum(sums.get(slot, (0, 0))) / self._worked(work, end) for slot, work in self.at_work.items()}
        return Rates(prompt, generated, slots)

    @staticmethod
    def _worked(work: Work, end: float) -> float:
        """How much of the window a slot's present work has lasted."""
        return min(RATE_WINDOW_S, max(_LEAST_WINDOW_S, end - work.since))

    def series(self, now: float) -> dict[str, list[Point]]:
        """The four series over the same bins, from the first of which anything is known."""
        last = _bin(now)
        oldest = last - BINS + 1
        self.watched = {index for index in self.watched if index >= oldest}
        first = max(oldest, min(self.watched | self.prompt.bins.keys() | self.generated.bins.keys(), default=last))
        summed, seen = {"prompt": self.prompt, "gen": self.generated}, {"queue": self.queue, "stall": self.stall}
        return {f"{name}_series": each.points(first, last, self.watched) for name, each in summed.items()} | {
            f"{name}_series": each.points(first, last, set()) for name, each in seen.items()
        }
