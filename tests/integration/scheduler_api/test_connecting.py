"""Every way out of the console: a name that changes its answer, a redirect, a key, against real sockets."""

from __future__ import annotations

import importlib
import io
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from pytest_django.fixtures import Settings

from scheduler_api import servers, wire
from scheduler_api.alerts.models import Recipient
from scheduler_api.connecting import dial
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.models import Server
from scheduler_api.sealing import seal
from scheduler_api.targets import AddressRefused, Target, allowed_targets
from tests.support.stub_servers import FakeEngine, FakeRedirect, running
from workers.load.client import make_client
from workers.load.connection import Connection

type Names = Callable[..., None]

BAD = "169.254.169.254"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Names that lead where a test says, each answer once; the last one stays."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def leads(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in known:
            return real(host, port, *args, **options)
        answer = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [entry for address in answer for entry in real(address, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", leads)

    def lead(host: str, *answers: list[str]) -> None:
        known[host] = list(answers)

    return lead


def named(url: str) -> str:
    return url.replace("127.0.0.1", "gpu.example.org")


async def _async_get(url: str) -> int:
    async with wire.async_client(Target(url), 5) as client:
        return (await wire.fetch(client, f"{url}/health")).status


async def _load_client(url: str) -> int:
    async with make_client(url) as client:
        return (await client.get("/health")).status_code


async def _dial(url: str) -> int:
    host, port = url.removeprefix("http://").split(":")
    transport, _ = await dial(Connection, host, int(port), allowed_targets(), context=None, limit_s=5)
    transport.close()
    return 200


async def _call(url: str) -> int:
    return wire.call(Target(url), "GET", "/health").status


WAYS = [_async_get, _load_client, _dial, _call]


@pytest.mark.parametrize("way", WAYS)
async def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to(names: Names, way: Any) -> None:
    """A second look-up would meet the metadata address; there is none."""
    with running(FakeEngine()) as engine:
        names("gpu.example.org", ["127.0.0.1"], [BAD])
        assert await way(named(engine.url)) == 200


@pytest.mark.parametrize("way", WAYS)
async def test_a_name_that_leads_elsewhere_after_registration_is_not_connected_to(names: Names, way: Any) -> None:
    names("gpu.example.org", ["127.0.0.1", BAD])
    with pytest.raises((AddressRefused, wire.NoAnswer, ServerUnreachable), match="metadata address"):
        await way("http://gpu.example.org:9")


@pytest.mark.parametrize("way", WAYS)
async def test_an_allow_list_holds_at_each_connection(settings: Settings, way: Any) -> None:
    settings.TARGET_ALLOW = ["10.0.0.0/8"]
    with running(FakeEngine()) as engine, pytest.raises(Exception, match="not among the allowed addresses"):
        await way(engine.url)


@pytest.mark.parametrize("way", WAYS)
async def test_the_next_address_is_tried_where_the_first_refuses(names: Names, way: Any) -> None:
    with running(FakeEngine()) as engine:
        names("gpu.example.org", ["127.0.0.2", "127.0.0.1"])
        assert await way(named(engine.url)) == 200


async def test_a_redirect_ends_where_it_is_met() -> None:
    with running(FakeEngine()) as elsewhere, running(FakeRedirect(elsewhere=elsewhere.url)) as server:
        assert await _call(server.url) == 307
        assert await _async_get(server.url) == 307
        assert await _load_client(server.url) == 307
    assert not elsewhere.seen


async def test_a_client_gives_its_key_to_no_other_origin() -> None:
    with running(FakeEngine(api_key="sk-1")) as own, running(FakeEngine(api_key="sk-1")) as other:
        async with wire.async_client(Target(own.url, "sk-1"), 5) as client:
            assert (await client.get(f"{own.url}/scheduler")).status_code == 200
            assert (await client.get(f"{other.url}/scheduler")).status_code == 401


def stored(table: str, column: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM scheduler_api_{table}")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db
def test_the_database_holds_no_key_in_the_clear_and_another_address_does_not_get_it() -> None:
    server = servers.register("a", "http://127.0.0.1:9", kind="engine", api_key="sk-secret")
    Recipient.objects.create(name="chat", channel="webhook", address="https://h.example.org/T0KEN", secret="sk-secret")
    for table, column in (("server", "api_key"), ("recipient", "address"), ("recipient", "secret")):
        assert stored(table, column).startswith("v1:")
    Server.objects.filter(pk=server.pk).update(base_url="http://127.0.0.1:10")  # past every check
    moved = Server.objects.get()
    moved.save()
    moved.refresh_from_db()
    assert moved.api_key == "sk-secret"
    assert Target(moved.base_url, moved.api_key).api_key == ""
    with pytest.raises(TypeError, match="bound to an origin"):
        Server.objects.update(api_key="sk-other")


@pytest.mark.django_db
def test_rows_from_before_are_brought_over_and_back() -> None:
    migration = importlib.import_module("scheduler_api.migrations.0010_sealed_credentials")
    Server.objects.create(name="a", kind="engine", base_url="http://127.0.0.1:9")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduler_api_server SET api_key = 'sk-plain'")

    before = MigrationLoader(connection).project_state(("scheduler_api", "0009_guard_rail_alerts")).apps
    migration.encrypt(before, None)
    kept = Server.objects.get().api_key
    assert (kept, kept.origin) == ("sk-plain", "http://127.0.0.1:9")
    migration.decrypt(before, None)
    assert stored("server", "api_key") == "sk-plain"


@pytest.mark.django_db
def test_rotating_brings_every_row_under_the_first_key(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    new, old, gone = (f"{name} key of more than thirty-two characters" for name in ("new", "old", "gone"))
    settings.CREDENTIAL_KEYS = [old]
    Server.objects.create(name="a", kind="engine", base_url="http://127.0.0.1:9", api_key="sk-1")
    settings.CREDENTIAL_KEYS = [new, old]
    call_command("rotate_credentials", stdout=io.StringIO())
    settings.CREDENTIAL_KEYS = [new]
    assert Server.objects.get().api_key == "sk-1"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduler_api_server SET api_key = %s", [str(seal("sk-1", "", [gone]))])
    with caplog.at_level(logging.CRITICAL), pytest.raises(CommandError, match="server a: opened by none of the keys"):
        call_command("rotate_credentials")
