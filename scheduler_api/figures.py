"""Rates, queue and stalls of one server over time, from what its slots were served. Pure: time comes in as an argument.

All times are the server's clock, Unix seconds.
- A rate is tokens computed in the last RATE_WINDOW_S of wall time, over that time; a batch's tokens count evenly over its
  duration. While slots work, the window ends with the last finished batch: the running one has not reported yet.
- A stall is a time during which a slot had work and got no token computed. The worst is taken over STALL_WINDOW_S, with
  those that still last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

BIN_S = 2.0
SPAN_S = 150.0
BINS = int(SPAN_S / BIN_S)
RATE_WINDOW_S = 2.0
STALL_WINDOW_S = 60.0
_LEAST_WINDOW_S = 0.25

type Point = list[float | None]


@dataclass(frozen=True, slots=True)
class Service:
    """Tokens computed for one slot in one batch, or between two polls."""

    slot: int
    start: float
    end: float
    prompt: int
    generated: int

    def within(self, start: float, end: float) -> float:
        """The share of this service that lies in start..end, 0 to 1."""
        if self.end - self.start < 1e-6:
            return 1.0 if start < self.end <= end else 0.0
        return max(0.0, min(end, self.end) - max(start, self.start)) / (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Work:
    """A slot's work: which (a task), from when on, and whether the batch that runs now may serve it."""

    key: int | None
    since: float
    running: bool


def _bin(t: float) -> int:
    return int(t // BIN_S)


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
        start = max(start, end - SPAN_S)
        if end - start < 1e-6:
            self.add(end, value)
            return
        for index in range(_bin(start), _bin(end) + 1):
            share = min(end, (index + 1) * BIN_S) - max(start, index * BIN_S)
            if share > 0:
                self.add(index * BIN_S, value * share / (end - start))

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


@dataclass(frozen=True, slots=True)
class _Stall:
    slot: int
    ended_at: float
    length: float


@dataclass(slots=True)
class Figures:
    """What a server's services add up to: `update` with each report, `watch` at each look, then read."""

    prompt: Series = field(default_factory=lambda: Series(_add, 1 / BIN_S))
    generated: Series = field(default_factory=lambda: Series(_add, 1 / BIN_S))
    queue: Series = field(default_factory=lambda: Series(max))
    stall: Series = field(default_factory=lambda: Series(max))
    watched: set[int] = field(default_factory=set)
    recent: deque[Service] = field(default_factory=deque)
    stalls: deque[_Stall] = field(default_factory=deque)
    last_end: dict[int, float] = field(default_factory=dict)
    at_work: dict[int, Work] = field(default_factory=dict)
    horizon: float = 0.0

    def update(self, work: Mapping[int, Work], services: Iterable[Service]) -> None:
        """`services` in order of time; `work` as it stands after them."""
        before = self.at_work
        self.at_work = before | {slot: self._begun(slot, new, before.get(slot)) for slot, new in work.items()}
        for service in services:
            self._serve(service)
        self.at_work = {slot: self.at_work[slot] for slot in work}

    def _begun(self, slot: int, new: Work, old: Work | None) -> Work:
        if old is not None and old.key == new.key:
            return Work(old.key, old.since, new.running)
        # Time before the slot was free is the queue's, not the slot's.
        return Work(new.key, max(new.since, self.last_end.get(slot, new.since)), new.running)

    def _serve(self, service: Service) -> None:
        self.prompt.spread(service.start, service.end, service.prompt)
        self.generated.spread(service.start, service.end, service.generated)
        self.recent.append(service)
        work = self.at_work.get(service.slot)
        if work is not None and (length := service.start - self._waits_since(service.slot, work)) > 0:
            self.stalls.append(_Stall(service.slot, service.start, length))
            self.stall.add(service.start, length)
        self.last_end[service.slot] = max(service.end, self.last_end.get(service.slot, service.end))
        self.horizon = max(self.horizon, service.end)

    def _waits_since(self, slot: int, work: Work) -> float:
        return max(work.since, self.last_end.get(slot, work.since))

    def watch(self, now: float, queue_depth: int | None) -> None:
        """Notes that the server was seen at `now`, and what is true of it just then."""
        self.watched.add(_bin(now))
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
        candidates = [*((stall.slot, stall.length) for stall in self.stalls), *self._open_stalls(now)]
        slot, length = max(candidates, key=lambda pair: pair[1], default=(None, 0.0))
        return (slot, length) if length > 0 else (None, 0.0)

    def _window_end(self, now: float) -> float:
        return max(self.horizon, now - RATE_WINDOW_S) if self.at_work and self.horizon < now else now

    def rates(self, now: float) -> tuple[float, float]:
        """(prompt, generated) tokens/s of all slots."""
        end = self._window_end(now)
        while self.recent and self.recent[0].end < end - 4 * RATE_WINDOW_S:
            self.recent.popleft()
        shares = [(service, service.within(end - RATE_WINDOW_S, end)) for service in self.recent]
        return (
            sum(service.prompt * share for service, share in shares) / RATE_WINDOW_S,
            sum(service.generated * share for service, share in shares) / RATE_WINDOW_S,
        )

    def slot_rate(self, slot: int, now: float) -> float | None:
        """Tokens/s of one slot's present work, over the window or since that work began; None without work."""
        work = self.at_work.get(slot)
        if work is None:
            return None
        end = self._window_end(now)
        start = max(end - RATE_WINDOW_S, min(work.since, end - _LEAST_WINDOW_S))
        tokens = sum((each.prompt + each.generated) * each.within(start, end) for each in self.recent if each.slot == slot)
        return tokens / (end - start)

    def series(self, now: float) -> dict[str, list[Point]]:
        """The four series over the same bins, from the first of which anything is known."""
        last = _bin(now)
        oldest = last - BINS + 1
        self.watched = {index for index in self.watched if index >= oldest}
        first = max(oldest, min(self.watched | self.prompt.bins.keys() | self.generated.bins.keys(), default=last))
        named = {"prompt": self.prompt, "gen": self.generated, "queue": self.queue, "stall": self.stall}
        return {f"{name}_series": each.points(first, last, self.watched) for name, each in named.items()}
