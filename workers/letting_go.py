"""Whether a server has let go of what a run gave up: asked within a fraction of a second, whatever the server does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from scheduler_api import selectors as registry
from scheduler_api.exceptions import SchedulerApiError
from scheduler_api.models import Server
from workers import target
from workers.errors import RunFailed
from workers.models import Run
from workers.scenarios import ScenarioError, load
from workers.scenarios.reading import read

log = logging.getLogger(__name__)

WITHIN_S = 0.4  # how long a stop waits for the slots that it gave up
LOOK_S = 0.05
CLOSED = "Its requests are closed"
IN_FLIGHT = "a batch in flight runs to its end"
NO_SLOTS = "The server does not tell of its slots, so whether it still works on what was given up is not known."
NO_ANSWER = f"The server does not answer, so whether its slots are free is not known; {IN_FLIGHT}."


def still_busy(run: Run) -> str:
    """Which of its slots are not free by then, in words; "" when all are. Closed connections free theirs at the next batch.

    A server that does not answer within WITHIN_S, as a llama-server within a batch, is told as the observer last saw it.
    """
    try:
        slots = slots_of(run)
    except ScenarioError:
        return ""
    if not target.tells_slots(run.server):
        return NO_SLOTS
    look = _Look(run.server, slots)
    look.join(WITHIN_S + LOOK_S)
    if look.failed:
        log.info("Run %d: whether its slots are free is unknown: %s", run.pk, look.failed)
    if look.busy is not None:
        return f"{_count(look.busy)} still busy at the end ({_list(look.busy)}): {IN_FLIGHT}." if look.busy else ""
    seen = _last_seen(run.server, slots)
    if not seen:
        return NO_ANSWER
    return f"{_count(seen)} still busy when last seen ({_list(seen)}): the server has not answered since, and {IN_FLIGHT}."


def slots_of(run: Run) -> set[int] | None:
    """The slots that a run's requests name; None when the server chose some. Raises ScenarioError."""
    if not run.scenario_text:
        scenario = load(run.scenario)
        return {scenario.cold.slot, scenario.short.slot}
    named = {stream.slot for stream in read(run.scenario_text).streams}
    return None if None in named else {slot for slot in named if slot is not None}


class _Look(threading.Thread):
    """Asks until none is busy or the time is over. `busy`: those of its last answer; None without any."""

    def __init__(self, server: Server, slots: set[int] | None) -> None:
        super().__init__(name=f"slots of {server.name}", daemon=True)
        self.busy: list[int] | None = None
        self.failed = ""
        self._server, self._slots = server, slots
        self.start()

    def run(self) -> None:
        end = time.monotonic() + WITHIN_S
        try:
            while (left := end - time.monotonic()) > 0:
                self.busy = target.busy_slots(self._server, self._slots, read_s=left)
                if not self.busy:
                    return
                time.sleep(LOOK_S)
        except (SchedulerApiError, RunFailed) as failure:
            self.failed = str(failure)


def _last_seen(server: Server, slots: set[int] | None) -> list[int]:
    state = registry.live_state(server.pk) or {}
    busy = [int(slot["id"]) for slot in state.get("slots") or () if slot["state"] != "idle"]
    return [slot for slot in busy if slots is None or slot in slots]


def _count(slots: Sequence[int]) -> str:
    return f"{len(slots)} slot{'s' if len(slots) > 1 else ''}"


def _list(slots: Sequence[int]) -> str:
    return ", ".join(map(str, slots))
