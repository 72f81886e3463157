"""One clock for all shards of a run: Valkey's, which every worker asks.

Each worker measures how far its own clock is from it (Cristian, 1989): the answer was given somewhere between asking and hearing,
so its middle is wrong by at most half of that. The quickest of several answers counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import redis

from scheduler_api import live
from workers.errors import RunFailed
from workers.load.clock import ClientClock

TRIES = 12
NAME = "Valkey's TIME"


@dataclass(frozen=True, slots=True)
class Offset:
    """`seconds`: the reference clock minus the worker's own, wrong by at most `error` seconds."""

    seconds: float
    error: float

    def beside(self, other: Offset) -> float:
        """What to add to a time of this worker to have it on the other's clock: 0 where the difference drowns in the errors."""
        difference = self.seconds - other.seconds
        return difference if abs(difference) > self.error + other.error else 0.0


def measure(clock: ClientClock) -> Offset:
    """Raises RunFailed when Valkey cannot be reached."""
    found: list[Offset] = []
    try:
        for _ in range(TRIES):
            before = clock.now()
            seconds, micros = live.client().time()
            after = clock.now()
            found.append(Offset(seconds + micros / 1e6 - (before + after) / 2, (after - before) / 2))
            time.sleep(0.002)
    except redis.RedisError as error:
        raise RunFailed(f"Valkey cannot be reached, and the shards have their common clock from it: {error}.") from None
    return min(found, key=lambda each: each.error)
