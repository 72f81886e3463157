"""The last iterations, for those who read afterwards or catch up."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from engine.scheduler.records import IterationRecord

RING_SIZE = 16_384


class IterationRing:
    """Records in order of iteration. One thread appends, any thread reads: both sides hold the GIL for one deque operation."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._records: deque[IterationRecord] = deque(maxlen=size)

    def append(self, record: IterationRecord) -> None:
        self._records.append(record)

    def after(self, iteration: int, limit: int, *, newest: bool = False) -> tuple[list[IterationRecord], bool]:
        """Records with a number above `iteration`, oldest first, at most `limit` (the newest of them if `newest`).

        The flag is true when records in between are missing: they left the ring, or were cut off at the front by `newest`.
        """
        records = self._snapshot(iteration)
        gap = bool(records) and records[0].iteration > iteration + 1
        if newest and len(records) > limit:
            return records[-limit:], True
        return records[:limit], gap

    @property
    def last(self) -> int:
        """Number of the newest iteration, 0 before the first."""
        try:
            return self._records[-1].iteration
        except IndexError:
            return 0

    def _snapshot(self, iteration: int) -> list[IterationRecord]:
        """Reads from the newest end, so that following costs what is new and not what is kept. One C call, hence atomic."""
        count = self.last - iteration + 8  # a few more, for what is appended meanwhile
        if count <= 0:
            return []
        found = list(islice(reversed(self._records), count))
        found.reverse()
        return [record for record in found if record.iteration > iteration]


def record_json(record: IterationRecord) -> dict[str, Any]:
    """An iteration as docs/protocol.md writes it."""
    return {
        "i": record.iteration,
        "t": round(record.t, 4),
        "plan_ms": round(record.plan_ms, 4),
        "run_ms": round(record.run_ms, 3),
        "settle_ms": round(record.settle_ms, 4),
        "prompt": record.prompt,
        "gen": record.generation,
        "skipped": [(skip.slot, skip.reason) for skip in record.skipped],
        "held": record.held,
        "phase": record.phase,
        "cohort": record.cohort,
        "sealed": record.sealed,
        "anchor": record.anchor,
        "cursor": record.cursor,
        "policy": record.policy_version,
        "queue": record.queue_depth,
        "error": record.error,
    }
