"""manage.py backup and restore on a real SQLite file: there and back, and whatever is wrong changes nothing."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
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

from dashboard.backup import archive, sqlite
from scheduler_api import audit
from scheduler_api.alerts import outbox
from scheduler_api.alerts.models import Delivery, Outcome
from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from scheduler_api.observer.models import ObserverClaim
from workers.models import Run, RunState, Sample

ROOT = Path(__file__).resolve().parents[3]


def made(var: Path, *options: str) -> Path:
    target = var.parent / "console.tar.gz"
    call_command("backup", str(target), *options, stdout=StringIO())
    return target


def restored(file: Path, *options: str) -> str:
    out = StringIO()
    call_command("restore", str(file), *options, stdout=out)
    return out.getvalue()


def refused(file: Path, *options: str) -> str:
    """The sentence of a restore that must change nothing."""
    before = content(sqlite.database())
    with pytest.raises(CommandError) as refusal:
        restored(file, *options)
    assert content(sqlite.database()) == before
    assert [path.name for path in sqlite.database().parent.glob("*before_restore*")] == []
    assert [path.name for path in sqlite.database().parent.glob(".re*")] == [], "nothing is left lying about"
    return str(refusal.value)


def content(path: Path) -> list[str]:
    connection.close()
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def names_in(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


def remade(file: Path, change: Callable[[dict[str, bytes]], None], extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    """The same backup with its members changed, as somebody with an editor would leave it."""
    with tarfile.open(file) as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    change(members)
    target = file.with_name("changed.tar.gz")
    with tarfile.open(target, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in extra:
            tar.addfile(info)
    return target


def with_manifest(members: dict[str, bytes], **change: object) -> None:
    """The manifest says so, and the sums fit."""
    told = json.loads(members[archive.MANIFEST]) | change
    sums = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()}
    told["members"] = {name: each for name, each in sums.items() if name != archive.MANIFEST}
    members[archive.MANIFEST] = json.dumps(told).encode()


# -- there and back -------------------------------------------------------------------------------------------------------


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


# -- what is refused ------------------------------------------------------------------------------------------------------


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
