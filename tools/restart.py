"""Processes that come back: under honcho one that ends takes all others with it, right at the start and wrong a day later.

A process that ends within its first seconds was not started rightly, and ends the whole. One that had been up is started again,
after a pause that doubles while it keeps ending at once.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

from honcho.manager import Manager
from honcho.process import Process

SETTLED_S = 5.0  # up for that long, a process counts as started rightly
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class ReturningProcess(Process):  # type: ignore[misc]  # honcho has no types
    """Reports its end to the manager only when it will not be started again."""

    def __init__(self, *args: Any, ending: Event, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ending = ending
        self._end: dict[str, Any] | None = None

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        pause, settled = FIRST_PAUSE_S, False
        while True:
            began = time.monotonic()
            super().run(events, ignore_signals)
            assert self._end is not None
            was_up = time.monotonic() - began >= SETTLED_S
            settled = settled or was_up
            if not settled or self._ending.is_set():
                break
            pause = FIRST_PAUSE_S if was_up else min(2 * pause, LONGEST_PAUSE_S)
            self._say(f"ended ({_words(self._end['returncode'])}); started again in {pause:g} s")
            if self._ending.wait(pause):
                break
        super()._send_message(self._end, type="stop")

    def _send_message(self, data: Any, type: str = "line") -> None:  # honcho's own name
        if type == "stop":
            self._end = data
        else:
            super()._send_message(data, type=type)

    def _say(self, text: str) -> None:
        super()._send_message(f"{text}\n".encode())


def _words(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class ReturningManager(Manager):  # type: ignore[misc]  # honcho has no types
    """A manager whose processes return until it terminates them."""

    def __init__(self, printer: Any) -> None:
        super().__init__(printer)
        self._ending = multiprocessing.Event()
        self._process_ctor: Callable[..., Process] = partial(ReturningProcess, ending=self._ending)

    def terminate(self) -> None:
        self._ending.set()
        super().terminate()
