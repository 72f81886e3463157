"""The last minutes of a server in Valkey: chunks of seconds that the observer writes and the API reads. Nothing else needs them.

`slotboard:detail:<server>` is a sorted set of the chunks there are, by their end; `<number>:<start>:<iterations>:<bytes>` in it
stands for the chunk under `slotboard:detail:<server>:<number>`. Both expire: an observer that is gone leaves nothing behind.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import Any

import redis
import redis.asyncio

from scheduler_api import live
from scheduler_api.history import chunks
from scheduler_api.history.chunks import Chunk, Json, Merger
from scheduler_api.history.tally import place

logger = logging.getLogger(__name__)

KEPT_S = 16 * 60
#: Of one server's chunks together; the oldest go first.
MOST_BYTES = 48 << 20
MOST_ITERATIONS = 4000
MOST_TASKS = 3000
_BATCH = 16
#: Two chunks further apart than this have a time between them in which no observer ran.
UNWATCHED_S = 2.0
NOBODY = "no observer watched"


#: Carries commands out at once, or none of them: False when it did not.
type Put = Callable[[Sequence[tuple[str | bytes | int | float, ...]]], Awaitable[bool]]


def index_key(server_id: int) -> str:
    return f"slotboard:detail:{server_id}"


def chunk_key(server_id: int, number: int) -> str:
    return f"slotboard:detail:{server_id}:{number}"


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    start: float
    end: float
    iterations: int
    size: int

    @property
    def member(self) -> str:
        return f"{self.number}:{self.start!r}:{self.iterations}:{self.size}"


def _entry(member: bytes, end: float) -> Entry:
    number, start, iterations, size = member.decode().split(":")
    return Entry(int(number), float(start), end, int(iterations), int(size))


@dataclass(slots=True)
class Writer:
    """Writes one server's chunks; knows what lies there, to keep it within `most_bytes`."""

    server_id: int
    most_bytes: int = MOST_BYTES
    entries: list[Entry] | None = None

    async def write(self, client: redis.asyncio.Redis, chunk: Chunk, put: Put) -> None:
        """Raises redis.RedisError or OSError when Valkey cannot be reached; then the index is read anew the next time."""
        try:
            if not await self._write(client, chunk, put):
                self.entries = None
        except (redis.RedisError, OSError):
            self.entries = None
            raise

    async def _write(self, client: redis.asyncio.Redis, chunk: Chunk, put: Put) -> bool:
        key = index_key(self.server_id)
        if self.entries is None:
            found: Any = await client.zrange(key, 0, -1, withscores=True)
            self.entries = [_entry(member, end) for member, end in found]
        data = chunks.encode(chunk)
        number = max((entry.number for entry in self.entries), default=0) + 1
        self.entries.append(Entry(number, chunk.first, chunk.end, len(chunk.iterations), len(data)))
        commands: list[tuple[str | bytes | int | float, ...]] = [
            ("SET", chunk_key(self.server_id, number), data, "EX", KEPT_S),
            ("ZADD", key, repr(chunk.end), self.entries[-1].member),
            ("EXPIRE", key, KEPT_S),
        ]
        for some in batched(self._drop(chunk.end), 1000):
            commands.append(("ZREM", key, *(entry.member for entry in some)))
            commands.append(("DEL", *(chunk_key(self.server_id, entry.number) for entry in some)))
        return await put(commands)

    def _drop(self, now: float) -> list[Entry]:
        assert self.entries is not None
        size = sum(entry.size for entry in self.entries)
        dropped = []
        while len(self.entries) > 1 and (size > self.most_bytes or abs(now - self.entries[0].end) > KEPT_S):
            dropped.append(self.entries.pop(0))
            size -= dropped[-1].size
        return dropped


async def keys(client: redis.asyncio.Redis, server_id: int) -> list[str]:
    """All keys that one server's detail lies under."""
    members: Any = await client.zrange(index_key(server_id), 0, -1)
    return [index_key(server_id), *(chunk_key(server_id, _entry(member, 0.0).number) for member in members)]


# Reading


@dataclass(slots=True)
class Detail:
    """A range of the detail. `tasks` overlap it; those that still run have `finished_at` null. `cut`: tasks were left out."""

    t_from: float
    t_to: float
    oldest: float | None = None
    iterations: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)
    marks: list[Json] = field(default_factory=list)
    gaps: list[list[Any]] = field(default_factory=list)
    cut: bool = False
    policies: list[tuple[float, Json | None]] = field(default_factory=list)  # in force up to each time
    info: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        parts = {name: getattr(self, name) for name in ("oldest", "iterations", "tasks", "marks", "gaps", "cut")}
        return {"from": self.t_from, "to": self.t_to, **parts}


def index(server_id: int) -> list[Entry]:
    """The chunks there are, oldest first; none when Valkey cannot be reached."""
    try:
        found: Any = live.client().zrange(index_key(server_id), 0, -1, withscores=True)
    except redis.RedisError as error:
        logger.warning("The detail cannot be read: %s", error)
        return []
    return [_entry(member, end) for member, end in found]


def between(server_id: int, entries: list[Entry], t_from: float, t_to: float) -> Iterator[Chunk]:
    """The chunks that tell of t_from..t_to, a few in memory at a time. The one that covers t_to tells of tasks beyond it."""
    wanted = [entry for entry in entries if entry.end >= t_from and entry.start <= t_to]
    for some in batched(wanted, _BATCH):
        try:
            found: Any = live.client().mget([chunk_key(server_id, entry.number) for entry in some])
        except redis.RedisError as error:
            logger.warning("The detail cannot be read: %s", error)
            return
        for data in found:
            if data is not None:  # it may have expired meanwhile
                yield chunks.decode(data)


def read(
    server_id: int, t_from: float, t_to: float, *, most_iterations: int = MOST_ITERATIONS, most_tasks: int = MOST_TASKS
) -> Detail:
    """The range as far as it is kept; what the newest chunk does not tell of yet comes from the live state."""
    detail, entries = Detail(t_from, t_to), index(server_id)
    detail.oldest = min((entry.start for entry in entries), default=None)
    expected = sum(entry.iterations for entry in entries if entry.start >= t_from and entry.end <= t_to)
    reading = _Reading(detail, Merger(most_iterations, factor=2 ** max(0, (expected // most_iterations).bit_length())))
    for chunk in between(server_id, entries, t_from, t_to):
        reading.take(chunk)
    if (state := live.read_many([server_id]).get(server_id)) is not None:
        reading.take_state(state)
    reading.finish(most_tasks)
    return detail


@dataclass(slots=True)
class _Reading:
    detail: Detail
    merger: Merger
    last: tuple[int, int] = (0, -1)
    covered: float | None = None
    tasks: dict[tuple[Any, ...], Json] = field(default_factory=dict)

    def take(self, chunk: Chunk) -> None:
        detail = self.detail
        for iteration in chunk.iterations:
            self._iteration(iteration)
        for task in chunk.tasks:
            self._ended(task)
        for task in chunk.open:
            self._open(task)
        detail.marks.extend(mark for mark in chunk.marks if detail.t_from <= mark["t"] <= detail.t_to)
        before = self.covered if self.covered is not None else max(detail.t_from, detail.oldest or 0.0)
        if chunk.first - before > UNWATCHED_S:
            self._gap(before, chunk.first, NOBODY)
        for start, end, why in chunk.gaps:
            self._gap(start, end, why)
        self.covered = max(chunk.end, self.covered or 0.0)
        detail.policies.append((chunk.end, chunk.policy))
        detail.info = chunk.info

    def take_state(self, state: Json) -> None:
        for iteration in state.get("iterations") or []:
            self._iteration(iteration)
        for task in state.get("tasks") or []:
            self._ended(task)
        if self.detail.t_to >= (self.covered or 0.0):
            for slot in state.get("slots") or []:
                if slot["state"] != "idle":
                    self._open(chunks.open_task(slot))
        known = {(mark["t"], mark["kind"]): at for at, mark in enumerate(self.detail.marks)}
        for mark in state.get("marks") or []:
            if (mark["t"], mark["kind"]) in known:  # the name from the audit comes later than the mark
                self.detail.marks[known[mark["t"], mark["kind"]]] = mark
            elif self.detail.t_from <= mark["t"] <= self.detail.t_to:
                self.detail.marks.append(mark)
        policy = state.get("policy")
        self.detail.policies.append((state["t"], policy.get("effective") if isinstance(policy, dict) else None))
        self.detail.info = self.detail.info or state.get("info") or {}

    def _iteration(self, iteration: Json) -> None:
        """In order, each once: streams that were resumed tell of some twice."""
        at = place(iteration)
        if iteration["t"] > self.detail.t_to or at <= self.last:
            return
        if (end := chunks.end_of(iteration)) >= self.detail.t_from:
            self.last = at
            self.merger.add(iteration, end)

    def _ended(self, task: Json) -> None:
        if task["finished_at"] >= self.detail.t_from and task["submitted_at"] <= self.detail.t_to:
            self.tasks[_key(task)] = task

    def _open(self, task: Json) -> None:
        if task["submitted_at"] is not None and task["submitted_at"] <= self.detail.t_to:
            before = self.tasks.get(_key(task))
            if before is None or before["finished_at"] is None:
                self.tasks[_key(task)] = task

    def _gap(self, start: float, end: float, why: str) -> None:
        start, end, gaps = max(start, self.detail.t_from), min(end, self.detail.t_to), self.detail.gaps
        if end <= start:
            return
        if gaps and gaps[-1][2] == why and start - gaps[-1][1] < UNWATCHED_S:
            gaps[-1][1] = end
        else:
            gaps.append([start, end, why])

    def finish(self, most_tasks: int) -> None:
        detail, found = self.detail, list(self.tasks.values())
        detail.iterations = self.merger.kept
        detail.cut = len(found) > most_tasks
        if detail.cut:
            found = sorted(found, key=lambda task: waited(task, detail.t_to), reverse=True)[:most_tasks]
        detail.tasks = sorted(found, key=lambda task: (task["submitted_at"], task["task"] or 0))
        detail.marks.sort(key=lambda mark: float(mark["t"]))
        if detail.oldest is None and detail.iterations:
            detail.oldest = detail.iterations[0]["t"]


def policy_at(detail: Detail, t: float) -> Json | None:
    """What was in force, as the end of the chunk that `t` lies in tells; a switch within it counts as made before."""
    return next((policy for end, policy in detail.policies if end >= t), detail.policies[-1][1] if detail.policies else None)


def _key(task: Json) -> tuple[Any, ...]:
    return task["task"], task["slot"], task["submitted_at"]


def waited(task: Json, now: float) -> float:
    """Seconds from submission to the first visit, or until now."""
    until = task["first_visit_at"] if task["first_visit_at"] is not None else (task["finished_at"] or now)
    return float(until - task["submitted_at"])
