"""What manage.py restore refuses, and that nothing is changed then."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection

from dashboard.backup import archive, sqlite
from scheduler_api.audit import guards
from tests.integration.backup.steps import made, refused, remade, restored, with_manifest

ROOT = Path(__file__).resolve().parents[3]


def test_a_torn_file_changes_nothing(filled: Path) -> None:
    file = made(filled)
    whole = file.read_bytes()
    for length in (0, 30, len(whole) // 2, len(whole) - 200):
        file.write_bytes(whole[:length])
        assert "torn" in refused(file) or "no backup" in refused(file), length
    file.write_bytes(b"not a tar file at all" * 100)
    assert "is torn or is no backup" in refused(file)
    assert "cannot be read" in refused(file.with_name("none.tar.gz"))


def test_a_changed_member_is_noticed(filled: Path) -> None:
    file = made(filled)

    def edit(members: dict[str, bytes]) -> None:
        members["database.sqlite3"] = members["database.sqlite3"].replace(b"atlas", b"btlas")

    assert "was changed" in refused(remade(file, edit))
    assert "was changed" in refused(remade(file, lambda members: members.update({"scenario-files/more.csv": b"x"})))

    def lose(members: dict[str, bytes]) -> None:
        del members["scenario-files/mine.csv"]

    assert "is missing" in refused(remade(file, lose))


@pytest.mark.parametrize(
    "name", ["../escaped", "/tmp/escaped", "scenario-files/../../escaped", "scenario-files/a/b", "settings.py"]
)
def test_a_member_that_does_not_belong_there_is_refused(filled: Path, name: str) -> None:
    def add(members: dict[str, bytes]) -> None:
        members[name] = b"x"
        with_manifest(members)

    assert "does not belong" in refused(remade(made(filled), add))
    assert not list(filled.parent.rglob("*escaped*"))


def test_a_link_is_refused(filled: Path) -> None:
    link = tarfile.TarInfo("credential_key")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert "does not belong" in refused(remade(made(filled), lambda members: None, (link,)))


def test_a_newer_schema_is_refused_in_a_sentence(filled: Path) -> None:
    def newer(members: dict[str, bytes]) -> None:
        told = json.loads(members[archive.MANIFEST])
        with_manifest(members, version="9.0", migrations=told["migrations"] | {"scheduler_api": "0999_tomorrow"})

    said = refused(remade(made(filled), newer))
    assert said == (
        "This backup was made by a newer Slotboard (9.0; scheduler_api 0999_tomorrow is not known here): update this one first."
    )
    assert "newer Slotboard" in refused(remade(made(filled, "--overwrite"), lambda members: with_manifest(members, format=2)))


def test_a_broken_trail_is_restored_only_when_forced(filled: Path) -> None:
    guards.lift(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduler_api_auditentry SET why = 'nothing' WHERE seq = 2")
    guards.install(connection)
    file = made(filled)
    assert "broken at row 2" in refused(file)
    assert "BROKEN at row 2" in restored(file, "--force")


def test_it_waits_for_nobody_who_runs(filled: Path) -> None:
    """Another process of the installation holds its lock; its end gives it back, however it ended."""
    file = made(filled)
    program = (
        "import os, sys, time; os.environ['DJANGO_SETTINGS_MODULE'] = 'dashboard.settings'\n"
        "from scheduler_api import processes; processes.hold('observer'); print('held', flush=True); time.sleep(60)"
    )
    environment = {"PATH": "/usr/bin", "SLOTBOARD_VAR_DIR": str(filled)}
    other = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert f"observer (pid {other.pid} on" in refused(file)
    finally:
        other.kill()
        other.communicate()
    assert "restored the backup" in restored(file)


def test_an_open_database_is_noticed_too(filled: Path) -> None:
    file = made(filled)
    with closing(sqlite3.connect(sqlite.database())) as other:
        other.execute("SELECT count(*) FROM workers_run").fetchone()
        assert "Another process has" in refused(file)
        assert "restored the backup" in restored(file, "--force")
