"""A console of the first version is brought forward to the present one, with everything that it held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from pytest_django.fixtures import Settings
from pytest_django.plugin import DjangoDbBlocker

from dashboard.backup import sqlite
from dashboard.people.models import Membership
from scheduler_api.alerts.models import Rule
from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import PolicyChange, Server
from tests.integration.backup.steps import made, restored
from workers.models import Block, Run, Sample

DUMP = Path(__file__).resolve().parents[2] / "support" / "first_release.sql"
KEY = "the credential key of the console that is brought forward"


def first_database(target: Path) -> Path:
    with closing(sqlite3.connect(target)) as database:
        database.executescript(DUMP.read_text())
    return target


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> Path:
    file = first_database(tmp_path_factory.mktemp("first") / "console.sqlite3")
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock(), sqlite.standing_in(file):
        patch.setattr("django.conf.settings.CREDENTIAL_KEYS", [KEY])
        call_command("migrate", verbosity=0)
    return file


@pytest.fixture
def forward(migrated: Path, settings: Settings, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    settings.CREDENTIAL_KEYS = [KEY]
    with django_db_blocker.unblock(), sqlite.standing_in(migrated):
        yield


@pytest.mark.usefixtures("forward")
def test_people_keep_their_roles() -> None:
    roles = dict(Membership.objects.filter(group__everything=True).values_list("user__username", "role"))
    assert roles == {"mira": "operator", "vera": "viewer", "ada": "admin", "nobody-special": "viewer"}


@pytest.mark.usefixtures("forward")
def test_servers_are_there_and_their_keys_encrypted_and_bound() -> None:
    found = {server.name: (server.kind, server.base_url, str(server.api_key)) for server in Server.objects.all()}
    assert found == {
        "local": ("engine", "http://127.0.0.1:8080", "first-engine-key"),
        "atlas": ("llama_server", "https://atlas.example.org:8443", "atlas-key"),
        "bare": ("llama_server", "http://10.0.0.9:8080", ""),
    }
    assert Server.objects.get(name="atlas").api_key.origin == "https://atlas.example.org:8443"
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key FROM scheduler_api_server")
        assert "key" not in str(cursor.fetchall())
    assert Rule.objects.count() >= 7, "what alerts begin with"


@pytest.mark.usefixtures("forward")
def test_runs_keep_their_blocks_samples_and_what_they_said() -> None:
    run = Run.objects.get(state="finished")
    assert (run.scenario, run.seed, run.order, run.floor) == ("warm-behind-cold", 4711, "abba", 0)
    assert (run.policy_a, run.policy_b) == ({"prefill_order": "physical"}, {"prefill_order": "rotating"})
    assert run.conditions["kv_mode"] == "split"
    assert run.warnings == ["One block was slow."]
    assert [block.arm for block in Block.objects.filter(run=run)] == ["A", "B", "B", "A"]
    assert Block.objects.get(run=run, index=2).timeline["iterations"][0]["run_ms"] == 310.5
    samples = Sample.objects.filter(run=run)
    assert samples.count() == 8
    short = samples.filter(role="short", arm="A").first()
    assert short is not None
    assert (short.slot, short.wait_s, short.n_prompt, short.counted, short.outcome) == (1, 4.1, 1500, True, "")
    assert sorted(Run.objects.values_list("state", flat=True)) == ["failed", "finished", "queued"]


@pytest.mark.usefixtures("forward")
def test_switches_of_then_are_the_first_rows_of_the_trail() -> None:
    assert isinstance(found := selectors.verify(), Head)
    assert found.seq == PolicyChange.objects.count() == 3
    first, _, third = AuditEntry.objects.order_by("seq")
    assert (first.actor_name, first.action, first.outcome) == ("mira", "policy.switched", "done")
    assert first.at == datetime(2026, 11, 30, 17, 0, 0, 123456, tzinfo=UTC)
    assert (third.outcome, third.why) == ("failed", 'try "cohorts" — é')
    assert guards.missing(connection) == []


@pytest.mark.usefixtures("forward")
def test_every_table_is_as_the_models_say() -> None:
    """No migration is missing, and the tables that grew over time have the columns of those that were made at once."""
    call_command("makemigrations", "--check", "--dry-run", verbosity=0, stdout=StringIO())
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        grown = {name: {each.name for each in connection.introspection.get_table_description(cursor, name)} for name in tables}
    wanted = {
        model._meta.db_table: {field.column for field in model._meta.concrete_fields}
        for model in apps.get_models(include_auto_created=True)
    }
    assert {name: grown.get(name) for name in wanted} == wanted


def test_a_console_of_then_is_backed_up_as_it_is_and_brought_forward_when_it_is_restored(bare: Path) -> None:
    """An operator backs up with the new version before anything is migrated."""
    first_database(sqlite.database())
    file = made(bare)
    assert sqlite.migrations(sqlite.database())["scheduler_api"] == "0001_initial"
    sqlite.database().unlink()
    said = restored(file)
    assert "brought forward by" in said
    assert "3 rows" in said
    assert Sample.objects.count() == 8
    assert sorted(Run.objects.values_list("state", flat=True)) == ["failed", "finished", "stopped"]
