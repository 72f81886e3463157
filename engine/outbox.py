"""What readers are told: tokens turned into text, progress, ends; gathered during a turn and handed out before the next batch.

Used by the loop thread alone, but for `task_of`, which only looks things up.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.base import Backend
from engine.delivery import Chunk, Done, Event, Handle, PromptProgress
from engine.meters import Meters
from engine.scheduler.plan import ErrorType, Finished, FinishReason, Outcome, Plan, Progress

MOST_UNREAD = 32  # tokens whose text nobody waits for


class Outbox:
    """The handles of all tasks from submission to their end, and the `events` that wait to go out."""

    def __init__(self, backend: Backend, meters: Meters) -> None:
        self.handles: dict[int, Handle] = {}
        self._by_slot: dict[int, Handle] = {}  # current or previous task of each slot
        self._backend = backend
        self._pieces: dict[int, bytes] = {}
        self._meters = meters
        self.events: list[Event] = []

    def task_of(self, task_id: int | None, slot: int) -> Handle | None:
        """The handle of a slot's task; of an idle slot the task that it had before, None when it never had one."""
        handle = None if task_id is None else self.handles.get(task_id)
        return handle or self._by_slot.get(slot)

    def note_starts(self, plan: Plan, now: float) -> None:
        for start in plan.starts + plan.child_starts:
            handle = self.handles.get(start.task.id)
            if handle is None:
                continue
            handle.slot, handle.n_cached, handle.visited_at = start.slot, start.n_past, now
            self._by_slot[start.slot] = handle
            if handle.progress:
                self.events.append(PromptProgress(handle, start.n_past, start.n_past, now))

    def note_probs(self, outcome: Outcome) -> None:
        """A first token may be held back; what belongs to it waits with its task."""
        for slot, probs in (outcome.probs or {}).items():
            if (handle := self._by_slot.get(slot)) is not None:
                handle.drawn.append(probs)
        for slot, listed in (outcome.run_probs or {}).items():
            if (handle := self._by_slot.get(slot)) is not None:
                handle.drawn.extend(listed)

    def note_prompts_done(self, plan: Plan, now: float) -> None:
        handles = self.handles
        for entry in plan.entries:
            if entry.output and (handle := handles.get(entry.task_id)) is not None and handle.prompt_done_at is None:
                handle.prompt_done_at = now

    def progress(self, steps: Sequence[Progress], now: float) -> None:
        for step in steps:
            handle = self.handles.get(step.task_id)
            if handle is not None and handle.progress:
                self.events.append(PromptProgress(handle, step.cache, step.processed, now))

    def emit(self, handle: Handle, token: int, now: float) -> FinishReason | None:
        """Takes a token for its reader. A reason when the text ends the task: a stop string, or too long a time.

        Where nobody looks at the text before its end, tokens are turned into text some at a time.
        """
        if not handle.is_patient:
            return self._read(handle, token, now)
        unread = handle.unread
        unread.append((token, now))
        if len(unread) >= MOST_UNREAD or handle.first_token_at is None:
            self._catch_up(handle)
        return None

    def _catch_up(self, handle: Handle) -> None:
        for token, at in handle.unread:
            self._read(handle, token, at)
        handle.unread.clear()

    def _read(self, handle: Handle, token: int, now: float) -> FinishReason | None:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._backend.piece(token)
        handle.n_decoded += 1
        self._meters.token(handle.last_token_at, now, handle.task.submitted_at)
        if handle.last_token_at is None:
            handle.first_token_at = now
        elif handle.worst_gap_s is None or now - handle.last_token_at > handle.worst_gap_s:
            handle.worst_gap_s = now - handle.last_token_at
        handle.last_token_at = now
        text = handle.text.push(piece)
        if handle.drawn:
            handle.probs.append(handle.drawn.popleft())
        if handle.stream:
            handle.tokens.append(token)
            if text is not None:
                self.events.append(_chunk(handle, text, now))
        else:
            if text:
                handle.parts.append(text)
            if handle.keep_tokens:
                handle.tokens.append(token)
        if handle.text.stopped_by:
            return FinishReason.WORD
        return FinishReason.LIMIT if handle.max_generation_s and _is_over_time(handle, now) else None

    def end(self, finished: Finished) -> Handle | None:
        """The task's handle, None when its reader had gone."""
        self._meters.finished(finished)
        handle = self.handles.pop(finished.task_id, None)
        if handle is None:
            return None
        self._catch_up(handle)
        handle.n_drafted, handle.n_accepted = finished.n_drafted, finished.n_accepted
        rest = handle.text.finish()
        if rest and not handle.stream:
            handle.parts.append(rest)
        elif rest or (handle.stream and handle.tokens):
            self.events.append(_chunk(handle, rest, finished.finished_at))
        stop = FinishReason.WORD if handle.text.stopped_by else finished.reason
        self.events.append(Done(handle, finished, stop))
        return handle

    def drop(self, handles: Sequence[Handle], message: str, now: float, kind: ErrorType = ErrorType.SERVER) -> None:
        """Tells readers that their tasks ended by a fault of the server, or with it."""
        for handle in handles:
            self.handles.pop(handle.task_id, None)
            finished = Finished(handle.slot, handle.task_id, FinishReason.ERROR, message, finished_at=now, error_type=kind)
            self.events.append(Done(handle, finished, FinishReason.ERROR))

    def hand_out(self) -> list[Event]:
        """Writes what has a sink straight to its connection; the rest, for the event loop."""
        events, self.events = self.events, []
        left: list[Event] = []
        for event in events:
            sink = event.handle.sink
            if sink is None:
                left.append(event)
            elif isinstance(event, Done):
                sink.close()  # the reader writes now, and two writers of one connection would mix their bytes
                left.append(event)
            elif (instead := sink.take(event)) is not None:
                left.append(instead)
        return left


def _is_over_time(handle: Handle, now: float) -> bool:
    return handle.text.has_new_line and now - (handle.first_token_at or now) > handle.max_generation_s


def _chunk(handle: Handle, text: str, at: float) -> Chunk:
    """Takes along what was not released before."""
    chunk = Chunk(handle, text, handle.tokens, handle.n_decoded, at, handle.probs or None)
    handle.tokens = []
    if chunk.probs:
        handle.probs = []
    return chunk
