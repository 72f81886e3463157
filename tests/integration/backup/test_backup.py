"""manage.py backup and restore on a real SQLite file: there and back."""

from __future__ import annotations

import json
import sqlite3
import stat
import tarfile
import threading
from contextlib import closing
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from dashboard.backup import sqlite
from scheduler_api import audit
from scheduler_api.alerts import outbox
from scheduler_api.alerts.models import Delivery, Outcome
from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from scheduler_api.observer.models import ObserverClaim
from tests.integration.backup.steps import made, names_in, restored
from workers.models import Run, RunState, Sample


def test_everything_comes_back_and_what_came_later_lies_beside(filled: Path, settings: Settings) -> None:
    file = made(filled, "--with-keys")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    head = selectors.head()
    Sample.objects.all().delete()
    Server.objects.filter(name="atlas").update(base_url="http://elsewhere:1")
    (filled / "scenario-files" / "mine.csv").write_text("changed")
    audit.record("server.changed", "atlas")
    settings.CREDENTIAL_KEYS = ["the key of another console"]

    said = restored(file)

    settings.CREDENTIAL_KEYS = (filled / "credential_key").read_text().split(",")
    server = Server.objects.get(name="atlas")
    assert (server.base_url, str(server.api_key), server.api_key.origin) == (
        "http://10.0.0.7:8080",
        "s3cret",
        "http://10.0.0.7:8080",
    )
    assert Sample.objects.count() == 40
    assert (filled / "secret_key").read_text() == "a secret key"
    assert (filled / "scenario-files" / "mine.csv").read_text() == "at,tokens\n0,5\n"
    found = selectors.verify()
    assert isinstance(found, Head)
    last = AuditEntry.objects.get(seq=found.seq)
    assert (found.seq, last.action, last.previous) == (head.seq + 1, "backup.restored", head.hash)
    assert json.loads(last.before)["seq"] == head.seq + 1, "it says what the replaced trail came to"
    assert guards.missing(connection) == []
    assert "3 rows" in said
    assert f"went on to row {head.seq + 1}" in said
    (old,) = [path for path in filled.glob("slotboard.sqlite3.before_restore_*") if path.suffix != "-wal"]
    assert str(old) in said
    with closing(sqlite3.connect(old)) as database:
        assert database.execute("SELECT count(*) FROM workers_sample").fetchone() == (0,)
        assert database.execute("SELECT max(seq) FROM scheduler_api_auditentry").fetchone() == (head.seq + 1,)


def test_nothing_goes_on_by_itself_after_a_restore_and_nobody_is_logged_in(filled: Path) -> None:
    Delivery.objects.create(transition="test", recipient_name="chat", channel="webhook")
    ObserverClaim.objects.create(what="server:1", token=1 << 60, holder="atlas:12", since=timezone.now())
    file = made(filled)
    said = restored(file)
    assert list(Run.objects.order_by("pk").values_list("state", flat=True)) == [RunState.FINISHED, RunState.LOST]
    assert Session.objects.count() == 0
    assert outbox.due() == []
    assert Delivery.objects.get().outcome == Outcome.FAILED
    assert not ObserverClaim.objects.exists(), "a clock that was ahead then keeps no observer out now"
    assert "1 alert message that had not been sent will not be." in said
    assert "1 experiment run that had not ended will not go on." in said
    assert "log in again" in said


def test_without_keys_it_says_what_is_lost(filled: Path, settings: Settings) -> None:
    out = StringIO()
    file = filled.parent / "plain.tar.gz"
    call_command("backup", str(file), stdout=out)
    assert "have to be entered again" in out.getvalue()
    assert sorted(names_in(file)) == ["database.sqlite3", "manifest.json", "scenario-files/mine.csv"]
    settings.CREDENTIAL_KEYS = ["the key of another console"]
    said = restored(file)
    assert "1 stored credential cannot be opened" in said
    assert "own stay in force" in said
    settings.CREDENTIAL_KEYS = ["the key of another console", "a credential key of the console that is backed up"]
    assert str(Server.objects.get().api_key) == "s3cret", "the stored text is kept, and the right key opens it"


def test_it_is_whole_while_others_write(filled: Path) -> None:
    """Rows that are written two at a time are never seen alone."""
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(sqlite.database(), timeout=20, isolation_level=None)) as database:
            for number in count():
                if stop.is_set():
                    return
                database.execute("BEGIN IMMEDIATE")
                for half in "ab":
                    database.execute(f"INSERT INTO django_session VALUES ('pair {number}{half}', '', '2030-01-01')")
                database.execute("COMMIT")
                wrote.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert wrote.wait(10)
        file = made(filled)
    finally:
        stop.set()
        writer.join()
    with tarfile.open(file) as tar:
        tar.extract("database.sqlite3", filled.parent, filter="data")
    with closing(sqlite3.connect(filled.parent / "database.sqlite3")) as copy:
        (rows,) = copy.execute("SELECT count(*) FROM django_session WHERE session_key LIKE 'pair %'").fetchone()
    assert rows > 0
    assert rows % 2 == 0


def test_a_file_that_is_there_is_not_overwritten_unasked(filled: Path) -> None:
    file = made(filled)
    before = file.read_bytes()
    with pytest.raises(CommandError, match="is there already"):
        made(filled)
    assert file.read_bytes() == before
    audit.record("rule.changed", "rule 4")
    assert made(filled, "--overwrite").read_bytes() != before


def test_a_fresh_host_has_no_old_database(filled: Path) -> None:
    file = made(filled, "--with-keys")
    connection.close()
    sqlite.database().unlink()
    said = restored(file)
    assert "is kept" not in said
    assert Sample.objects.count() == 40
