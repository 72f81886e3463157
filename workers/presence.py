"""Whether the server is still the process that a run began on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.models import Server
from workers import target
from workers.errors import RunFailed
from workers.lease import Watch

type Json = dict[str, Any]

BACK_WITHIN_S = 60.0  # what a restart with a large model may take
ASK_EVERY_S = 0.3


class Presence:
    """Only the engine says when its process began; of other servers a restart shows in the requests that fail."""

    def __init__(self, server: Server, watch: Watch, say: Callable[[str], None], *, told: bool) -> None:
        self._server, self._watch, self._say = server, watch, say
        self._began = _began(target.state(server)) if told else None

    def restarted(self) -> Json | None:
        """The server's state once it is back, when its process is another one than before; None when it is the same.

        Waits for a server that does not answer. Raises RunFailed when it stays away, and what the watch finds.
        """
        if self._began is None:
            return None
        state = self._state()
        if (began := _began(state)) == self._began:
            return None
        self._began = began
        return state

    def another(self) -> Json | None:
        """As `restarted`, without waiting: None too for a server that does not answer just now."""
        try:
            state = None if self._began is None else target.state(self._server, read_s=2.0)
        except (ServerUnreachable, RunFailed):
            return None
        return None if state is None or _began(state) == self._began else state

    def _state(self) -> Json:
        end = time.monotonic() + BACK_WITHIN_S
        while True:
            try:
                return target.state(self._server, read_s=5.0)
            except (ServerUnreachable, RunFailed) as failure:  # also an engine that answers 503 while it loads
                if time.monotonic() > end:
                    raise RunFailed(f"{self._server.name} has not come back within {BACK_WITHIN_S:g} s. {failure}") from None
            self._say("The server does not answer; waiting for it to come back")
            self._watch.sleep(ASK_EVERY_S)


def _began(state: Json) -> float | None:
    told = state.get("server")
    began = told.get("started_at") if isinstance(told, dict) else None
    return float(began) if isinstance(began, int | float) else None
