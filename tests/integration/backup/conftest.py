"""A console with a database file, keys and a var folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
from django.utils import timezone
from pytest_django.fixtures import Settings
from pytest_django.plugin import DjangoDbBlocker

from dashboard.backup import sqlite
from scheduler_api import audit
from scheduler_api.models import Server
from workers.models import Block, Run, RunState, Sample

KEY = "a credential key of the console that is backed up"


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> Path:
    """With its tables, and what each console begins with."""
    file = tmp_path_factory.mktemp("backup") / "empty.sqlite3"
    with django_db_blocker.unblock(), sqlite.standing_in(file):
        call_command("migrate", verbosity=0)
    return file


@pytest.fixture
def bare(tmp_path: Path, settings: Settings, django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    """The var folder of a console that has no database yet."""
    folder = tmp_path / "var"
    folder.mkdir()
    settings.VAR_DIR = folder
    settings.CREDENTIAL_KEYS, settings.SECRET_KEY = [KEY], "a secret key"
    with django_db_blocker.unblock(), sqlite.standing_in(folder / "slotboard.sqlite3"):
        yield folder


@pytest.fixture
def var(bare: Path, empty_database: Path) -> Path:
    """The var folder of a console that was just installed."""
    shutil.copy(empty_database, bare / "slotboard.sqlite3")
    return bare


@pytest.fixture
def filled(var: Path) -> Path:
    """A server with a key, a finished run and one under way, three rows of the trail, and somebody who is logged in."""
    user = User.objects.create_user("ada", password="ada-password")
    server = Server.objects.create(name="atlas", kind="engine", base_url="http://10.0.0.7:8080", api_key="s3cret")
    run = new_run(server, RunState.FINISHED)
    block = Block.objects.create(run=run, index=0, arm="A", started_at=timezone.now(), timeline={"iterations": [{"i": 1}]})
    Sample.objects.bulk_create(Sample(run=run, block=block, role="cold", sent_at=float(n), ttft_s=0.5) for n in range(40))
    new_run(server, RunState.RUNNING)
    for number in range(3):
        audit.record("rule.changed", f"rule {number}", actor=user, before={"for_s": number}, after={"for_s": number + 1})
    session = SessionStore()
    session["_auth_user_id"] = str(user.pk)
    session.save()
    (var / "scenario-files").mkdir()
    (var / "scenario-files" / "mine.csv").write_text("at,tokens\n0,5\n")
    return var


def new_run(server: Server, state: str) -> Run:
    ended = timezone.now() - timedelta(days=1) if state == RunState.FINISHED else None
    return Run.objects.create(
        scenario="warm-behind-cold", server=server, repetitions=8, seed=7, state=state, finished_at=ended, lease="held"
    )
