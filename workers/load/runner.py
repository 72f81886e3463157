"""Sends a plan, each request at its moment of the monotonic clock, and keeps what came of it.

Open-loop requests are sent when they are due whether or not earlier ones were answered; how much later than planned each was sent
is its dispatch delay, and the generator's own fault. A chained request has no planned moment, so it has no dispatch delay either.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from workers.load.clock import ClientClock
from workers.load.dialects import Dialect
from workers.load.http import Limits, Wire
from workers.load.planned import AnswerOf, Plan, Planned
from workers.load.reading import Answer, Outcome, Reading

CHECK_EVERY = 200  # requests encoded between two looks whether that is still wanted: some milliseconds
AHEAD_S = 0.0005  # an event loop wakes up to a millisecond late, so the last bit is waited for by yielding


@dataclass(frozen=True, slots=True)
class Record:
    """A request as planned and as it went. `scheduled_at`: Unix seconds on the client's clock; None for a chained request."""

    request: Planned
    scheduled_at: float | None
    answer: Answer

    @property
    def dispatch_s(self) -> float | None:
        sent = self.answer.outcome is not Outcome.SKIPPED
        return self.answer.sent_at - self.scheduled_at if sent and self.scheduled_at is not None else None


@dataclass(frozen=True, slots=True)
class Load:
    """`started_at`: the moment from which the plan counts."""

    started_at: float
    records: tuple[Record, ...]


class Runner:
    """`on_record` is called in the loop when a request has ended, `on_sent` when one is handed over, `on_first` with the TTFT in
    seconds when a first token came.

    Without `keep`, records are given to `on_record` alone: a load of a million requests would not fit otherwise.
    """

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect,
        clock: ClientClock,
        *,
        silence_s: float = 600.0,
        on_record: Callable[[Record], None] = lambda _: None,
        on_sent: Callable[[Planned], None] = lambda _: None,
        on_first: Callable[[float], None] | None = None,
        keep: bool = True,
    ) -> None:
        self._wire, self._dialect, self._clock = wire, dialect, clock
        self._silence_s = silence_s
        self._on_record, self._on_sent, self._on_first = on_record, on_sent, on_first
        self._keep_records = keep
        self._answers: dict[int, Answer] = {}
        self._records: dict[int, Record] = {}
        self._plan: Plan | None = None

    async def warm(self, plan: Plan) -> list[Record]:
        """The warming requests, one after the other."""
        found = []
        for request in plan.warming:
            answer = await self._exchange(request, self._encode(request, {}), self._reading(keep=False))
            found.append(Record(request, None, answer))
        return found

    def prepare(self, plan: Plan, check: Callable[[], None] = lambda: None) -> None:
        """Makes the bodies of all requests beforehand, except where they hold an answer that is yet to come.

        `check` is called now and then: what it raises ends it.
        """
        self._plan = plan
        self._requests = {each.number: each for each in plan.requests}
        self._keep = {piece.request for each in plan.requests for piece in each.pieces if isinstance(piece, AnswerOf)}
        self._ready: dict[int, bytes] = {}
        for place, each in enumerate(plan.requests):
            if place % CHECK_EVERY == 0:
                check()
            if not _holds_answers(each):
                self._ready[each.number] = self._encode(each, {})
        self._waits = {each.number: len(each.after) for each in plan.requests}
        self._followers: dict[int, list[Planned]] = defaultdict(list)
        for each in plan.requests:
            for before in each.after:
                self._followers[before].append(each)

    async def run(self, plan: Plan, lead_s: float = 0.05, start_at: float | None = None) -> Load:
        """All requests to their ends, from `start_at` (Unix seconds on the client's clock), else `lead_s` from now.

        Cancelling it closes every connection at once; what had ended by then is in `partial`, and what was under way ended as
        stopped.
        """
        if self._plan is not plan:
            self.prepare(plan)
        self._start = self._clock.now() + lead_s if start_at is None else start_at
        self._due: list[tuple[float, int]] = [
            (self._start + each.at_s, each.number) for each in plan.requests if each.at_s is not None
        ]
        heapq.heapify(self._due)
        self._left = len(plan.requests)
        self._changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            while self._left:
                await self._wait_for_work()
                while self._due and self._due[0][0] <= self._clock.now():
                    moment, number = heapq.heappop(self._due)
                    group.create_task(self._send(self._requests[number], moment))
        return Load(self._start, self.partial)

    def release(self, number: int) -> None:
        """A request that is sent elsewhere has ended: what waits for it here may be due. In the loop, while it runs."""
        for follower in self._followers.get(number, ()):
            if (skipped := self._follow(follower, ended_well=True)) is not None:
                self._finish(skipped)
        self._changed.set()

    @property
    def partial(self) -> tuple[Record, ...]:
        return tuple(record for _, record in sorted(self._records.items()))

    async def _wait_for_work(self) -> None:
        """Until something is due; a request that ended may have made a chained one due."""
        self._changed.clear()
        if not self._due:
            await self._changed.wait()
            return
        wait_s = self._due[0][0] - self._clock.now()
        if wait_s <= 0:
            return
        if wait_s <= AHEAD_S:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s - AHEAD_S):
                await self._changed.wait()

    async def _send(self, request: Planned, moment: float) -> None:
        encoded = self._ready.pop(request.number, None) or self._encode(request, self._answers)
        scheduled_at = moment if request.at_s is not None else None
        self._on_sent(request)
        reading = self._reading(keep=request.number in self._keep)
        try:
            answer = await self._exchange(request, encoded, reading)
        except asyncio.CancelledError:
            if (begun := reading.begun) is not None:
                self._add(Record(request, scheduled_at, begun.answer(Outcome.STOPPED, "The run ended first.")))
            raise
        if request.number in self._keep:
            self._answers[request.number] = answer
        self._finish(Record(request, scheduled_at, answer))

    def _add(self, record: Record) -> None:
        if self._keep_records:
            self._records[record.request.number] = record
        self._on_record(record)

    def _finish(self, record: Record) -> None:
        """Keeps it, and makes due or skips what follows it: a loop, since a chain that is skipped can be thousands long."""
        ended = [record]
        while ended:
            record = ended.pop()
            self._left -= 1
            self._add(record)
            ended_well = record.answer.outcome is Outcome.OK
            for follower in self._followers.get(record.request.number, ()):
                if (skipped := self._follow(follower, ended_well=ended_well)) is not None:
                    ended.append(skipped)
        self._changed.set()

    def _follow(self, follower: Planned, *, ended_well: bool) -> Record | None:
        """One that it waits for has ended. Makes it due when that was the last, or gives it as skipped: a turn without the answer
        before it, or past its loop's end.
        """
        self._waits[follower.number] -= 1
        if self._waits[follower.number]:
            return None
        now = self._clock.now()
        due = now + follower.think_s
        late = follower.not_after_s is not None and due > self._start + follower.not_after_s
        broken = follower.turn > 0 and not ended_well
        if late or broken:
            why = "Its loop's time was over." if late else "The turn before it did not end well."
            return Record(follower, None, Answer(now, outcome=Outcome.SKIPPED, error=why))
        heapq.heappush(self._due, (due, follower.number))
        return None

    def _encode(self, request: Planned, answers: Mapping[int, Answer]) -> bytes:
        return self._wire.encode(self._dialect.path, self._dialect.body(request, answers), self._dialect.headers(request))

    def _reading(self, *, keep: bool) -> _Opened:
        return _Opened(lambda: Reading(self._clock.now, keep=keep, on_first=self._on_first))

    async def _exchange(self, request: Planned, encoded: bytes, reading: _Opened) -> Answer:
        leave = request.leave
        limits = Limits(self._silence_s, leave.seconds if leave else None, leave.tokens if leave else None)
        return await self._wire.exchange(encoded, reading, limits)


class _Opened:
    """Begins a reading when the wire has room for it, and remembers it: a stopped request still has its times."""

    __slots__ = ("_begin", "begun")

    def __init__(self, begin: Callable[[], Reading]) -> None:
        self._begin = begin
        self.begun: Reading | None = None

    def __call__(self) -> Reading:
        self.begun = self._begin()
        return self.begun


def _holds_answers(request: Planned) -> bool:
    return any(isinstance(piece, AnswerOf) for piece in request.pieces)
