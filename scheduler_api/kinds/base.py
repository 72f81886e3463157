"""What the observer needs of each kind of server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_api.figures import Service
from scheduler_api.health import Health
from scheduler_api.kinds.fields import Json
from scheduler_api.targets import Target

#: Parts of a state of which a server tells nothing.
NOT_TOLD: Json = {
    "policy": None,
    "phase": None,
    "cursor": None,
    "anchor": None,
    "iteration": None,
    "queue": None,
    "slots": [],
    "units": [],
}


@dataclass(frozen=True, slots=True)
class Condition:
    """The server is up, or why nothing of its work is known. `seen`: it gave an answer, even if that was a refusal."""

    state: Health
    reason: str = ""
    detail: str = ""
    seen: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """What one report told, in the shapes of docs/protocol.md section 2.

    `t` is the server's clock where it tells its own, else the console's. `parts` are top-level keys of the state, those alone
    that this report told of. `tasks` (ended ones) and `services` are those since the last report. `restarted`: the process is
    another than before, or that of the part called `who` is. `working` tells, where slots are not reported, whether there is
    work. `progressed`: something was computed that `services` do not tell of. `asleep`: the model was unloaded until the next
    request.
    """

    t: float
    parts: Json
    iterations: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    restarted: bool = False
    who: str = ""
    working: bool | None = None
    progressed: bool = False
    asleep: bool = False


type Report = Reading | Condition


class Observed(Protocol):
    """A kind's way of watching."""

    def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        """Reports for as long as it is iterated. It handles what goes wrong with the server itself, with growing pauses."""
        ...
