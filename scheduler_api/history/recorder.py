"""What an observer remembers of one server, bounded: the last minute for its fairness, the present chunk and the present minute.

Pure: what is finished is taken from here and written by others. All times are the server's clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from scheduler_api.figures import Service
from scheduler_api.history import fairness
from scheduler_api.history.chunks import Chunk, open_task
from scheduler_api.history.rollups import Minute
from scheduler_api.history.tally import Json, Roster, Tally, Tracker, total

WINDOW_S = 60
KEPT_TASKS = 3000
CHUNK_S = 5.0
#: A chunk ends sooner with this many iterations: what is not written yet is in the state's last iterations.
CHUNK_ITERATIONS = 100
MOST_CHUNKS = 64
MOST_MINUTES = 180
#: An observer that looks later than this after its last look did not watch in between.
LONGEST_LOOK_S = 5.0
RUNNING = frozenset({"prompt", "generating"})
_INFO = ("n_slots", "n_batch", "n_ubatch", "n_ctx", "n_ctx_slot", "kv_mode")


@dataclass(frozen=True, slots=True)
class Look:
    """What is true of a server at a moment. `why`: why nothing of its work is known, "" where it is."""

    t: float
    why: str
    slots: list[Json]
    queue: int | None
    kv_used: int | None
    policy: Json | None
    info: Json
    batches: bool


@dataclass(slots=True)
class Recorder:
    tracker: Tracker = field(default_factory=Tracker)
    freed: dict[int, float] = field(default_factory=dict)
    window: deque[tuple[int, Tally]] = field(default_factory=deque)
    tasks: deque[Json] = field(default_factory=lambda: deque(maxlen=KEPT_TASKS))
    chunk: Chunk | None = None
    chunks: deque[Chunk] = field(default_factory=lambda: deque(maxlen=MOST_CHUNKS))
    minute: Minute | None = None
    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=MOST_MINUTES))
    slots: list[Json] = field(default_factory=list)
    began: float | None = None
    seen: Look | None = None

    # What happened

    def update(
        self, t: float, iterations: Sequence[Json], services: Iterable[Service], tasks: Sequence[Json], slots: list[Json]
    ) -> None:
        """What one report told; `slots` as they stand after it."""
        roster = Roster(tasks, slots, self.freed)
        self.freed, self.slots = roster.freed, slots
        told = [*services]
        oldest = min([t, *(iteration["t"] for iteration in iterations[:1]), *(service.start for service in told[:1])])
        self.began = oldest if self.began is None else min(oldest, self.began)
        for second, some in groupby(iterations, key=lambda each: int(each["t"])):
            tally = Tally()
            for iteration in some:
                self.tracker.follow(tally, iteration, roster)
            self._count(second, tally)
        for service in told if not iterations else ():
            tally = Tally()
            tally.served(service.slot, service.prompt, service.generated, None)
            self._count(service.start, tally)
        for task in tasks:
            tally = Tally()
            tally.ended(task)
            self._count(task["finished_at"], tally)
        self.tasks.extend(tasks)
        chunk = self._chunk(t)
        chunk.iterations.extend(iterations)
        chunk.tasks.extend(tasks)

    def restart(self, t: float) -> None:
        self.tracker.forget()
        self.freed = {}
        self.slots = []
        self._minute(t).restarts += 1

    def lost(self) -> None:
        """Nothing of its work is known from here on: no gap reaches over that."""
        self.tracker.forget()
        self.slots = []

    def mark(self, mark: Json, t: float) -> None:
        self._chunk(t).marks.append(mark)

    def look(self, look: Look) -> None:
        """At each frame: adds the time since the last look to the present minute, and ends what is full."""
        before, self.seen = self.seen, look
        if before is not None and 0 < look.t - before.t <= LONGEST_LOOK_S and not look.why:
            self._minute(look.t).saw(look.t - before.t, look.slots, look.queue, look.kv_used, self._longest_wait(look.t))
        chunk = self._chunk(look.t)
        if look.why:
            _extend(chunk.gaps, before.t if before is not None and before.t > chunk.start else chunk.start, look.t, look.why)
        if look.t - chunk.start >= CHUNK_S or len(chunk.iterations) >= CHUNK_ITERATIONS:
            self._end_chunk(look)
        if self.minute is not None and look.t >= self.minute.t + 60:
            self.minutes.append(self.minute)
            self.minute = None

    def take_chunks(self) -> list[Chunk]:
        taken = list(self.chunks)
        self.chunks.clear()
        return taken

    def put_back(self, minutes: Sequence[Minute]) -> None:
        """Minutes that could not be written; the oldest go when there are too many."""
        self.minutes = deque([*minutes, *self.minutes], maxlen=MOST_MINUTES)

    def end(self) -> None:
        """The present chunk and minute count as finished."""
        if self.seen is not None:
            self._end_chunk(self.seen)
        if self.minute is not None:
            self.minutes.append(self.minute)
            self.minute = None

    def take_minutes(self) -> list[Minute]:
        taken = list(self.minutes)
        self.minutes.clear()
        return taken

    # The last minute

    def fairness(self, now: float, *, batches: bool) -> Json | None:
        """The object over the last WINDOW_S, or since the first report if that is less; None before it."""
        if self.began is None:
            return None
        start = max(now - WINDOW_S, min(self.began, now))
        while self.window and self.window[0][0] < int(start):
            self.window.popleft()
        while self.tasks and self.tasks[0]["finished_at"] < start:
            self.tasks.popleft()
        tally = total(each for _, each in self.window)
        end = max(now, self.tracker.horizon)
        roster = Roster((), self.slots, self.freed)
        running = {slot["id"] for slot in self.slots if slot["state"] in RUNNING}
        waits = fairness.open_waits(self.tracker, roster, start, now, running) if batches else []
        busy = fairness.busy_seconds(self.tasks, self.slots, start, end)
        return fairness.of(tally, start, now, busy, waits, fairness.ttfts(self.tasks), batches=batches)

    # Parts

    def _count(self, t: float, tally: Tally) -> None:
        """Adds to the second's, and to the minute's."""
        second = int(t)
        if not self.window or second > self.window[-1][0]:
            self.window.append((second, Tally()))
            while self.window[-1][0] - self.window[0][0] > WINDOW_S + 1:
                self.window.popleft()
        next((kept for each, kept in reversed(self.window) if each <= second), self.window[0][1]).add(tally)
        self._minute(t).tally.add(tally)

    def _minute(self, t: float) -> Minute:
        """The one that `t` lies in; what comes late counts in the present one."""
        if self.minute is None:
            self.minute = Minute(t // 60 * 60)
        elif t >= self.minute.t + 60:
            self.minutes.append(self.minute)
            self.minute = Minute(t // 60 * 60)
        return self.minute

    def _longest_wait(self, now: float) -> float:
        roster = Roster((), self.slots, self.freed)
        running = {slot["id"] for slot in self.slots if slot["state"] in RUNNING}
        return max((wait.seconds for wait in fairness.open_waits(self.tracker, roster, 0.0, now, running)), default=0.0)

    def _chunk(self, t: float) -> Chunk:
        if self.chunk is None:
            self.chunk = Chunk(t, t)
        return self.chunk

    def _end_chunk(self, look: Look) -> None:
        chunk = self._chunk(look.t)
        chunk.end = look.t
        chunk.open = [open_task(slot, self.freed) for slot in look.slots if slot["state"] != "idle"]
        chunk.policy = look.policy
        chunk.info = {name: look.info.get(name) for name in _INFO}
        self.chunks.append(chunk)
        self.chunk = Chunk(look.t, look.t)


def _extend(gaps: list[list[Any]], start: float, end: float, why: str) -> None:
    if gaps and gaps[-1][2] == why and start - gaps[-1][1] <= LONGEST_LOOK_S:
        gaps[-1][1] = end
    else:
        gaps.append([start, end, why])
