"""A worker's children end with it: one that is killed cannot tell them to.

Celery leaves the processes of its pool and its clock behind when the worker itself is killed: a run would go on under nobody, and
what is due would be sent twice once the worker is back.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery.signals import beat_embedded_init, worker_process_init

LOOK_S = 1.0


def watch(**_: Any) -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()


worker_process_init.connect(watch)
beat_embedded_init.connect(watch)


def _end_with(parent: int) -> None:
    """At once, as if killed too: connections are closed by the system, and a run is found lost by its heartbeat."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
