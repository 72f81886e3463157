"""PostgreSQL: written by pg_dump, read by pg_restore, with the old tables kept in a schema of their own beside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from dashboard.backup import BackupError

BINARIES = Path("/usr/lib/postgresql")
PACKAGE = "PostgreSQL's client programs (Debian: apt install postgresql-client)"
#: libpq's variables for what a connection is told: nothing of it stands on a command line.
VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "service": "PGSERVICE",
    "options": "PGOPTIONS",
}


def program(name: str) -> str:
    """Debian's newest version, else what the path finds: one that is older than the server refuses. Raises BackupError."""
    versions = [path for path in BINARIES.glob(f"*/bin/{name}") if path.parts[-3].isdecimal()]
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    if found := str(newest) if newest is not None else shutil.which(name):
        return found
    raise BackupError(f"{name} was not found, and a PostgreSQL database cannot go without it; install {PACKAGE}.")


def _run(name: str, *arguments: str) -> None:
    given: dict[str, Any] = connection.get_connection_params()
    told = {VARIABLES[key]: str(value) for key, value in given.items() if key in VARIABLES and value}
    command = [program(name), "--no-password", *arguments]
    done = subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, check=False)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "error" in line.lower()), done.stderr.strip())
        raise BackupError(f"{name} failed: {why.strip().removesuffix('.')}.")


def dump(target: Path) -> None:
    """Of one moment, while everything runs. What an earlier restore set aside is left out."""
    left_out = "--exclude-schema=before_restore_*"
    _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", left_out, f"--file={target}", f"--dbname={_name()}")


def _name() -> str:
    return str(connection.settings_dict["NAME"])


def migrations() -> dict[str, str]:
    newest: dict[str, str] = {}
    for app, name in sorted(MigrationRecorder(connection).applied_migrations()):
        newest[app] = name
    return newest


def put(staged: Path, aside: str, finish: Callable[[], None]) -> str:
    """Reads the dump in beside the old tables, which move to the schema `aside`, and lets `finish` work on it.

    What goes wrong takes the new tables away and brings the old ones back. Where those lie, "" when there were none. Raises
    BackupError.
    """
    program("pg_restore")
    schema = aside.replace("-", "_")
    had_tables = bool(connection.introspection.table_names())
    _execute(f'ALTER SCHEMA public RENAME TO "{schema}"', "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")
    connection.close()
    try:
        options = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
        _run("pg_restore", *options, f"--dbname={_name()}", str(staged))
        finish()
    except BaseException:
        connection.close()
        _execute("DROP SCHEMA public CASCADE", f'ALTER SCHEMA "{schema}" RENAME TO public')
        raise
    connection.close()
    if not had_tables:
        _execute(f'DROP SCHEMA "{schema}" CASCADE')
        return ""
    return f"the schema {schema}"


def _execute(*statements: str) -> None:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    except DatabaseError as error:
        raise BackupError(f"The schema of the database could not be changed, which its owner alone may: {error}") from None


def others() -> int:
    """Other connections to the database, from wherever."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])
