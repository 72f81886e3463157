"""What a board remembers beyond the present state: the last ended tasks, its fairness, and what is kept of both. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_api.frames import KEPT_TASKS
from scheduler_api.history.recorder import Look, Recorder
from scheduler_api.kinds.base import Reading
from scheduler_api.kinds.fields import Json, count, mapping

FAIRNESS_S = 1.0


@dataclass(slots=True)
class Memory:
    recorder: Recorder = field(default_factory=Recorder)
    tasks: list[Json] = field(default_factory=list)
    fairness: Json | None = None
    made_at: float = 0.0
    missing: Json = field(default_factory=dict)

    def read(self, reading: Reading, fresh: Sequence[Json], slots: list[Json]) -> None:
        """`fresh`: the iterations that were not told before."""
        self.recorder.update(reading.t, fresh, reading.services, reading.tasks, slots)
        if reading.tasks:
            self.tasks = [*self.tasks, *reading.tasks][-KEPT_TASKS:]

    def restart(self, t: float) -> None:
        self.tasks = []
        self.recorder.restart(t)

    def look(self, now: float, why: str, parts: Json, info: Json, missing: Json) -> None:
        """At each frame, on the server's clock. `why`: why nothing is known of its work, "" where it is."""
        depth, batches = count(mapping(parts["queue"]).get("depth")), "iterations" not in missing
        policy = mapping(parts["policy"]).get("effective")
        self.recorder.look(Look(now, why, parts["slots"], depth, count(info.get("kv_used")), policy, info, batches))
        if why:
            self.fairness = None
        elif abs(now - self.made_at) >= FAIRNESS_S:
            self.made_at = now
            made = self.recorder.fairness(now, batches=batches)
            if not _same(made, self.fairness):
                self.fairness = made


def _same(new: Json | None, old: Json | None) -> bool:
    """Whether only the range moved on."""
    return new is not None and old is not None and new | {"from": 0, "to": 0} == old | {"from": 0, "to": 0}
