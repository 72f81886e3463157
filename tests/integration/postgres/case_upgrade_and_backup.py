"""PostgreSQL: a console of the first version is backed up, restored, brought forward, and backed up and restored again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.apps.registry import Apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from pytest_django.fixtures import Settings
from pytest_django.plugin import DjangoDbBlocker

from dashboard.backup import postgresql, sqlite
from scheduler_api import audit
from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from workers.models import Run, RunState, Sample

FIRST = [("scheduler_api", "0001_initial"), ("workers", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]
FIRST += [("sessions", "0001_initial")]


@contextmanager
def console(template: str) -> Iterator[None]:
    """Everything that uses the database uses one of this console's own, made from another."""
    given = connection.get_connection_params()
    with psycopg.connect(
        host=given["host"], port=given["port"], user=given["user"], dbname="postgres", autocommit=True
    ) as server:
        # A database that somebody is connected to is no template.
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (template,))
        server.execute(f"CREATE DATABASE console TEMPLATE {template}")
        try:
            with sqlite.standing_in(Path("console")):
                yield
        finally:
            server.execute("DROP DATABASE console WITH (FORCE)")


@pytest.fixture
def var(tmp_path: Path, settings: Settings) -> Path:
    settings.VAR_DIR = tmp_path
    settings.CREDENTIAL_KEYS = ["the credential key of the console"]
    return tmp_path


@pytest.fixture
def empty(var: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    with django_db_blocker.unblock(), console("template0"):
        yield var


@pytest.fixture
def installed(var: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    """With its tables: as the other tests' database, which is given back its connections by the next that asks."""
    made = str(connection.settings_dict["NAME"])
    connection.close()
    with django_db_blocker.unblock(), console(made):
        yield var


def fill(apps: Apps) -> None:
    """Rows as the first version wrote them."""
    user = apps.get_model("auth", "User").objects.create(username="mira")
    user.groups.add(apps.get_model("auth", "Group").objects.create(name="operator"))
    server = apps.get_model("scheduler_api", "Server").objects.create(
        name="atlas", kind="llama_server", base_url="http://10.0.0.7:8080", api_key="s3cret", created_by=user
    )
    asked = {"old": {"phase": "continuous"}, "changes": {"phase": "barrier"}}
    for outcome in ("applied", "refused"):
        apps.get_model("scheduler_api", "PolicyChange").objects.create(
            server=server, actor=user, actor_name="mira", outcome=outcome, **asked
        )
    run = apps.get_model("workers", "Run").objects.create(
        scenario="warm-behind-cold", server=server, repetitions=2, seed=7, state="running", conditions={"kv_mode": "split"}
    )
    block = apps.get_model("workers", "Block").objects.create(run=run, index=0, arm="A", started_at=timezone.now())
    for slot in range(2):
        apps.get_model("workers", "Sample").objects.create(run=run, block=block, role="cold", slot=slot, sent_at=1.0)


def restored(file: Path, *options: str) -> str:
    out = StringIO()
    call_command("restore", str(file), *options, stdout=out)
    return out.getvalue()


def schemas() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'before_restore_%' ORDER BY nspname")
        return [name for (name,) in cursor.fetchall()]


def test_from_the_first_version_to_the_present_by_way_of_backups(empty: Path) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(FIRST)
    fill(executor.loader.project_state(FIRST).apps)
    old = empty / "old.tar.gz"
    call_command("backup", str(old), stdout=StringIO())

    said = restored(old)
    assert "brought forward by" in said
    assert "2 rows" in said
    assert str(Server.objects.get().api_key) == "s3cret"
    assert Run.objects.get().state == RunState.LOST
    assert Run.objects.filter(conditions__kv_mode="split").count() == 1
    assert Sample.objects.count() == 2
    assert isinstance(selectors.verify(), Head)
    assert guards.missing(connection) == []
    (before,) = schemas()
    call_command("makemigrations", "--check", "--dry-run", verbosity=0, stdout=StringIO())

    file = empty / "new.tar.gz"
    call_command("backup", str(file), "--with-keys", stdout=StringIO())
    head = selectors.head()
    Sample.objects.all().delete()
    audit.record("server.changed", "atlas")

    with psycopg.connect(**_params()) as other:
        other.execute("SELECT 1")
        with pytest.raises(CommandError, match="there is still 1 other connection to the database"):
            restored(file)
    assert Sample.objects.count() == 0
    file.with_name("torn.tar.gz").write_bytes(file.read_bytes()[:-300])
    with pytest.raises(CommandError, match="torn"):
        restored(file.with_name("torn.tar.gz"))

    said = restored(file)
    assert Sample.objects.count() == 2
    last = AuditEntry.objects.get(seq=head.seq + 1)
    assert (last.action, last.previous, json.loads(last.before)["seq"]) == ("backup.restored", head.hash, head.seq + 1)
    assert guards.missing(connection) == []
    first, second = schemas()
    assert (first, second in said) == (before, True), "what an earlier restore set aside stays, and is no part of a backup"
    Server.objects.create(name="borea", kind="engine", base_url="http://10.0.0.8:8080")


@pytest.mark.django_db(transaction=True)  # so that the tests' database is there, whatever else is run
def test_a_restore_that_fails_midway_brings_the_old_tables_back(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Server.objects.create(name="atlas", kind="engine", base_url="http://10.0.0.7:8080")
    file = installed / "console.tar.gz"
    call_command("backup", str(file), stdout=StringIO())
    Server.objects.update(name="later")
    monkeypatch.setattr(postgresql, "BINARIES", installed / "none")
    monkeypatch.setenv("PATH", str(installed))
    with pytest.raises(CommandError, match=r"pg_restore was not found.*postgresql-client"):
        restored(file)
    monkeypatch.undo()

    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE small LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO small")
    given = connection.settings_dict["USER"]
    connection.close()
    connection.settings_dict["USER"] = "small"
    try:
        with pytest.raises(CommandError, match="which its owner alone may"):
            restored(file)
    finally:
        connection.close()
        connection.settings_dict["USER"] = given

    with monkeypatch.context() as patch:
        patch.setattr(audit, "record", _fail)
        with pytest.raises(RuntimeError, match="midway"):
            restored(file)
    assert Server.objects.get().name == "later"
    assert schemas() == []


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError("midway")


def _params() -> dict[str, Any]:
    given = connection.get_connection_params()
    return {name: given[name] for name in ("host", "port", "user", "dbname")}
