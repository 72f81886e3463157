"""A load's records as rows of the database and of a block's timeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from workers.load.reading import Outcome
from workers.load.runner import Record
from workers.load.timing import durations
from workers.models import Block, Sample
from workers.recording import moments, stages


def add_records(block: Block, records: Sequence[Record], counted: frozenset[int], role: str | None = None) -> None:
    """`counted`: numbers of the requests that are part of the result. `role` stands in place of the stream's name."""
    Sample.objects.bulk_create(
        (_sample(block, record, record.request.number in counted, role) for record in records), batch_size=200
    )


def _sample(block: Block, record: Record, counted: bool, role: str | None) -> Sample:
    request, answer, times = record.request, record.answer, durations(record.answer)
    return Sample(
        run_id=block.run_id,
        block=block,
        pair=block.pair,
        arm=block.arm,
        role=role or request.stream,
        slot=request.slot,
        client=request.client or "",
        place=request.place,
        stage=request.stage,
        scheduled_at=record.scheduled_at,
        n_prompt=answer.n_prompt,
        n_cached=answer.n_cached,
        **moments(answer),
        **stages(times),
        outcome=answer.outcome,
        counted=counted,
        ok=answer.outcome in (Outcome.OK, Outcome.CANCELLED),
        error=answer.error,
    )


class Keeper:
    """Writes records down while the load runs, so that a worker that is killed leaves what had ended by then.

    The generator's loop gives records, another thread writes them. `every`: keep only each so-manieth request by its number.
    `shift_s`: added to all times, which brings a shard's records onto the clock of the run's worker.
    """

    def __init__(self, block: Block, counted: frozenset[int], *, every: int = 1, shift_s: float = 0.0) -> None:
        self._block, self._counted, self._every, self._shift_s = block, counted, every, shift_s
        self._waiting: deque[Record] = deque()

    def take(self, record: Record) -> None:
        if record.request.number % self._every == 0:
            self._waiting.append(record)

    def flush(self, most: int | None = None) -> None:
        """At most `most` of those that wait. Raises DatabaseError; then none of these is lost."""
        count = len(self._waiting) if most is None else min(most, len(self._waiting))
        if count:
            records = [self._waiting[place] for place in range(count)]
            add_records(self._block, [moved(record, self._shift_s) for record in records], self._counted)
            for _ in records:
                self._waiting.popleft()


def moved(record: Record, by_s: float) -> Record:
    """With all its times on another clock."""
    if not by_s:
        return record
    answer = record.answer
    names = ("first_byte_at", "first_token_at", "done_at", "headers_at", "first_content_at", "last_token_at")
    times: dict[str, Any] = {name: None if (at := getattr(answer, name)) is None else at + by_s for name in names}
    on_time = replace(answer, sent_at=answer.sent_at + by_s, chunks=tuple(at + by_s for at in answer.chunks), **times)
    return replace(record, scheduled_at=None if record.scheduled_at is None else record.scheduled_at + by_s, answer=on_time)


ROW = ("role", "slot", "sent_at", "first_token_at", "done_at", "n_prompt", "n_cached", "outcome")


def request_rows(block: Block) -> list[dict[str, Any]]:
    """As a timeline has them, by sending: {role, slot, sent_at, first_visit_at, first_token_at, done_at, n_prompt, n_cached,
    outcome}.
    """
    kept = block.samples.exclude(role="warm").order_by("sent_at").values(*ROW, "wait_s")
    rows = []
    for row in kept:
        wait_s = row.pop("wait_s")
        rows.append({**row, "first_visit_at": None if wait_s is None else row["sent_at"] + wait_s})
    return rows
