"""The client's clock: monotonic, and laid on the Unix epoch so that it can stand beside the server's times."""

from __future__ import annotations

import time


class ClientClock:
    def __init__(self) -> None:
        self._offset = time.time() - time.perf_counter()

    def now(self) -> float:
        """Unix seconds; differences are exact even when the machine's wall clock is set."""
        return self._offset + time.perf_counter()
