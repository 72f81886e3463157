"""SQLite: copied through its own online backup while everything runs, and put in place as a file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.db import connection

from dashboard.backup import BackupError

WAIT_S = 30.0
#: A database in WAL mode is up to three files.
PARTS = ("", "-wal", "-shm")


def database() -> Path:
    return Path(str(connection.settings_dict["NAME"]))


def dump(target: Path) -> None:
    """A consistent copy, as of one moment: writers go on meanwhile, since in WAL mode a reader holds up nobody."""
    source = database()
    if not source.exists():
        raise BackupError(f"There is no database at {source} yet.")
    try:
        with closing(sqlite3.connect(source, timeout=WAIT_S)) as live, closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
            check(copy, str(source))
    except sqlite3.Error as error:
        raise BackupError(f"The database {source} could not be copied: {error}.") from None


def check(copy: sqlite3.Connection, what: str) -> None:
    """Raises BackupError for a damaged file."""
    first = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if first != "ok":
        raise BackupError(f"The database {what} is damaged: {first}.")


def migrations(path: Path) -> dict[str, str]:
    """The newest applied migration of each app."""
    with closing(sqlite3.connect(path)) as copy:
        if not copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone():
            raise BackupError(f"The database {database()} has no tables of Slotboard.")
        return dict(copy.execute("SELECT app, max(name) FROM django_migrations GROUP BY app ORDER BY app"))


@contextmanager
def standing_in(path: Path) -> Iterator[None]:
    """Within it, everything that uses the database uses the one at `path`. For a process that does nothing else."""
    given = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = given


def put(staged: Path, aside: str, finish: Callable[[], None], *, force: bool) -> str:
    """Lets `finish` work on the staged database, then makes it the database. Where the old one lies then, "" when there was none.

    What goes wrong before the last step, a rename, leaves the old one as it is. Raises BackupError.
    """
    with closing(sqlite3.connect(staged)) as copy:
        check(copy, "in the backup")
    with standing_in(staged):
        finish()
    with closing(sqlite3.connect(staged)) as copy:
        copy.execute("PRAGMA journal_mode=DELETE")
    target = database()
    target.parent.mkdir(parents=True, exist_ok=True)
    old = _set_aside(target, target.with_name(f"{target.name}.{aside}"), force=force) if target.exists() else ""
    owned_like(Path(old) if old else target.parent, staged)
    os.replace(staged, target)
    return old


def _set_aside(target: Path, old: Path, *, force: bool) -> str:
    if not force:
        _close_log(target)
    for part in PARTS:
        if (each := Path(f"{target}{part}")).exists():
            os.replace(each, f"{old}{part}")
    return str(old)


def _close_log(target: Path) -> None:
    """Everything into one file. SQLite does that only while nobody else has the database open, so it is the last check too."""
    try:
        with closing(sqlite3.connect(target, timeout=0.5)) as alone:
            alone.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError:
        raise BackupError(f"Another process has {target} open; stop it first, or restore all the same with --force.") from None
    except sqlite3.DatabaseError:
        return  # damaged, which may be why a backup is restored: it is kept as it is


def owned_like(known: Path, fresh: Path) -> None:
    """Root may restore for the account that the processes run under."""
    if os.geteuid() == 0:
        os.chown(fresh, known.stat().st_uid, known.stat().st_gid)
