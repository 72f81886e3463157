"""From the loop thread to asyncio: what a task's reader receives, and the mailbox it waits at."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from engine.scheduler.plan import Finished, TokenProbs
from engine.scheduler.task import Task
from engine.text import TextStream


class ReaderGone(Exception):
    """The client closed the connection before its answer was complete."""


class Mailbox:
    """Events of one request, for one reader on the event loop. Touched by the event loop's thread alone."""

    __slots__ = ("_closed", "_items", "_nudged", "_waiter")

    def __init__(self) -> None:
        self._items: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._nudged = False

    def put(self, event: Event) -> None:
        self._items.append(event)
        if self._waiter is not None:
            self._wake()

    def nudge(self) -> None:
        """Lets the reader have an empty list, so that it can send a sign of life."""
        self._nudged = True
        self._wake()

    def close(self) -> None:
        """Nobody reads the answer any more."""
        self._closed = True
        self._wake()

    async def take(self) -> list[Event]:
        """Everything that has come; empty after a nudge. Raises ReaderGone once the mailbox is closed."""
        while not self._items and not self._nudged and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._closed:
            raise ReaderGone
        self._nudged = False
        items, self._items = self._items, []
        return items

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


@dataclass(slots=True, eq=False, repr=False)  # text stays out of logs
class Handle:
    """A task as the runner and its reader know it. The runner's thread alone writes to it once it is submitted."""

    task: Task
    task_id: int  # the task's own, or a child's
    index: int
    mailbox: Mailbox
    text: TextStream
    stream: bool
    progress: bool = False
    keep_tokens: bool = False
    max_generation_s: float = 0.0  # from the first token on, once there is a new line; 0: no limit
    sink: Sink | None = None
    slot: int = -1
    visited_at: float | None = None
    prompt_done_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    worst_gap_s: float | None = None  # the longest time between two tokens
    n_cached: int = 0
    n_decoded: int = 0
    n_drafted: int = 0  # of a task that has ended
    n_accepted: int = 0
    parts: list[str] = field(default_factory=list)  # of the whole text, unless streamed
    tokens: list[int] = field(default_factory=list)  # unstreamed: all of them if kept; streamed: not yet released
    drawn: deque[TokenProbs] = field(default_factory=deque)  # of tokens that are not shown yet, where the task asked for them
    probs: list[TokenProbs] = field(default_factory=list)  # as `tokens`
    unread: list[tuple[int, float]] = field(default_factory=list)  # tokens, with their times, that are no text yet
    is_patient: bool = field(init=False)  # nothing depends on the text before the task has ended

    def __post_init__(self) -> None:
        self.is_patient = not (self.stream or self.text.has_stops or self.max_generation_s or self.task.sampling.n_probs)


@dataclass(slots=True, eq=False, repr=False)  # text stays out of logs
class Chunk:
    """Text that a streaming reader may send now, with the tokens it came from. `at` is when the last of them was made."""

    handle: Handle
    text: str
    tokens: list[int]
    n_decoded: int
    at: float
    probs: list[TokenProbs] | None = None


@dataclass(slots=True, eq=False)
class PromptProgress:
    handle: Handle
    cache: int
    processed: int
    at: float


@dataclass(slots=True, eq=False)
class Done:
    """The last event of a task. `stop` is eos, word, limit, none, cancelled or error."""

    handle: Handle
    finished: Finished
    stop: str


@dataclass(slots=True, eq=False, repr=False)  # text stays out of logs
class Raw:
    """Bytes that a sink could not write: they go to the connection as they are, before everything that follows."""

    handle: Handle
    data: bytes


Event = Chunk | PromptProgress | Done | Raw


class Sink(Protocol):
    """A way for events that does not lead through the event loop."""

    def take(self, event: Event) -> Event | None:
        """None when the event is dealt with, else what the mailbox must get in its place."""
        ...

    def close(self) -> None:
        """From now on every event comes back."""
        ...


def deliver(events: Iterable[Event]) -> None:
    for event in events:
        event.handle.mailbox.put(event)
