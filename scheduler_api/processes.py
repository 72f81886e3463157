"""Which processes of this installation run on this host.

Each one holds a lock on a file of its own under `running/` of the var folder. The kernel takes the lock back with the process, so
a file that nobody holds was left by one that died. A forked child that outlives its parent goes on holding it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

from django.conf import settings

logger = logging.getLogger(__name__)

_held: list[IO[bytes]] = []


def hold(role: str) -> None:
    """Says until this process ends that it runs. `role` is "web", "observer" or "worker"; once for each process.

    Where the var folder cannot be written to, it cannot be said, and the process goes on.
    """
    try:
        _hold(role, _folder())
    except OSError as error:
        logger.warning("That this process runs cannot be told to a restore: %s", error)


def _hold(role: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    running()  # sweeps up after those that died
    descriptor, fresh = tempfile.mkstemp(prefix=".new-", dir=folder)
    file = os.fdopen(descriptor, "wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    # Named only once it is locked: nobody takes it for one that was left behind.
    os.rename(fresh, folder / f"{role}.{os.getpid()}.{socket.gethostname()}.{Path(fresh).name.removeprefix('.new-')}")
    _held.append(file)


def running() -> list[str]:
    """In words, "observer (pid 12 on atlas)". Files that nobody holds are removed on the way."""
    found = []
    for path in sorted(_folder().glob("[!.]*")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if _is_free(file):
                path.unlink()
            else:
                role, pid, rest = path.name.split(".", 2)
                found.append(f"{role} (pid {pid} on {rest.rpartition('.')[0]})")
    return found


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "running"
