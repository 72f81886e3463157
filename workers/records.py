"""A load's records as rows of the database and of a block's timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from workers.load.reading import Outcome
from workers.load.runner import Record
from workers.load.timing import durations
from workers.models import Block, Sample
from workers.recording import chunks_ms


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
        sent_at=answer.sent_at,
        headers_at=answer.headers_at,
        first_byte_at=answer.first_byte_at,
        first_token_at=answer.first_token_at,
        first_content_at=answer.first_content_at,
        last_token_at=answer.last_token_at,
        done_at=answer.done_at,
        chunks_ms=chunks_ms(answer),
        wall_s=times.wall_s,
        wait_s=times.wait_s,
        prompt_s=times.prompt_s,
        ttft_s=times.ttft_s,
        hold_s=times.hold_s,
        generation_s=times.generation_s,
        n_prompt=answer.n_prompt,
        n_cached=answer.n_cached,
        n_generated=answer.n_generated,
        tokens_from=answer.tokens_from,
        outcome=answer.outcome,
        counted=counted,
        ok=answer.outcome in (Outcome.OK, Outcome.CANCELLED),
        error=answer.error,
    )


def request_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """As a timeline has them: {role, slot, sent_at, first_visit_at, first_token_at, done_at, n_prompt, n_cached, outcome}."""
    rows = []
    for record in records:
        answer, times = record.answer, durations(record.answer)
        rows.append(
            {
                "role": record.request.stream,
                "slot": record.request.slot,
                "sent_at": answer.sent_at,
                "first_visit_at": None if times.wait_s is None else answer.sent_at + times.wait_s,
                "first_token_at": answer.first_token_at,
                "done_at": answer.done_at,
                "n_prompt": answer.n_prompt,
                "n_cached": answer.n_cached,
                "outcome": answer.outcome,
            }
        )
    return rows
