"""A real PostgreSQL for tests: a cluster of its own in a folder of its own, on a port of its own, ended with its tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.stack import ROOT, free_port

#: Nothing of it outlives its tests, so nothing of it has to reach a disk.
OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=60", "shared_buffers=32MB")


@dataclass(frozen=True, slots=True)
class Cluster:
    port: int
    bin: Path

    def url(self, database: str = "postgres") -> str:
        return f"postgres://slotboard@127.0.0.1:{self.port}/{database}"


def find_postgres() -> Path:
    found = subprocess.run(["sh", str(ROOT / "tools" / "postgres.sh")], capture_output=True, text=True, check=False)
    if found.returncode:
        if os.environ.get("CI"):
            raise AssertionError(f"PostgreSQL is needed for this test: {found.stderr}")
        pytest.skip(f"no PostgreSQL is here: {found.stderr.strip()}")
    return Path(found.stdout.strip())


def _account() -> str | None:
    """PostgreSQL does not run as root: then Debian's account for it, else nobody."""
    if os.geteuid():
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


@contextlib.contextmanager
def running_postgres() -> Iterator[Cluster]:
    bin, account, port = find_postgres(), _account(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="slotboard-postgres-"))
    if account is not None:
        shutil.chown(folder, account)
    data = str(folder / "data")

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(bin / program), *arguments],
            user=account,
            extra_groups=[] if account is not None else None,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program} failed: {done.stderr}"

    started = False
    try:
        who = ("--username", "slotboard", "--auth", "trust")
        run("initdb", "--pgdata", data, *who, "--encoding", "UTF8", "--locale", "C", "--no-sync")
        where = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}")
        told = " ".join(f"-c {each}" for each in (*OPTIONS, *where))
        run("pg_ctl", "start", "--pgdata", data, "--wait", "--silent", "--log", str(folder / "log"), "--options", told)
        started = True
        yield Cluster(port, bin)
    finally:
        if started:
            run("pg_ctl", "stop", "--pgdata", data, "--mode", "immediate", "--silent")
        shutil.rmtree(folder, ignore_errors=True)
