"""The browser's WebSocket over the whole ASGI application, with a real Valkey between observer and consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import time
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from dashboard.asgi import application
from dashboard.feed.consumers import NO_OBSERVER, NO_VALKEY, OUTBOX, STOPPED, ServerFeed
from scheduler_api import live
from scheduler_api.frames import apply
from scheduler_api.models import Server
from scheduler_api.observer.publisher import Publisher
from tests.conftest import client_of, point_at
from tests.support.observers import HoldingPublisher
from tests.support.valkey import ValkeyProcess, running_valkey
from tests.support.websocket import AsgiSocket

pytestmark = pytest.mark.django_db(transaction=True)

LOCAL = b"http://127.0.0.1"


@pytest.fixture
def server() -> Server:
    return Server.objects.create(name="local", kind="engine", base_url="http://127.0.0.1:1")


@pytest.fixture
def cookie(viewer: User) -> str:
    return client_of(viewer).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerFeed, "recheck_s", 0.2)


def state(seq: int, **changes: Any) -> dict[str, Any]:
    return {"seq": seq, "t": time(), "health": {"state": "up"}, "slots": [], "iterations": []} | changes


def delta(seq: int, **changes: Any) -> dict[str, Any]:
    return {"seq": seq, "t": time(), "set": changes, "slots": [], "iterations": [], "tasks": [], "figures": {}, "series": {}}


def socket(server_id: int, cookie: str = "", origin: bytes = LOCAL) -> AsgiSocket:
    headers = [(b"host", b"127.0.0.1"), (b"origin", origin)]
    if cookie:
        headers.append((b"cookie", f"{django_settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    return AsgiSocket(application, f"/ws/servers/{server_id}/", headers)


@asynccontextmanager
async def observer() -> AsyncIterator[Publisher]:
    """Writes as an observer does."""
    async with live.async_client(django_settings.REDIS_URL) as client:
        yield HoldingPublisher(client)
    await get_channel_layer().flush()


async def test_without_a_login_the_socket_is_closed_with_its_code(server: Server, valkey: ValkeyProcess) -> None:
    async with socket(server.pk) as browser:
        assert (await browser.next())["type"] == "websocket.accept"
        assert (await browser.next())["code"] == 4401


async def test_an_unknown_server_is_closed_with_its_code(cookie: str, valkey: ValkeyProcess) -> None:
    async with socket(999, cookie) as browser:
        assert (await browser.next())["type"] == "websocket.accept"
        assert (await browser.next())["code"] == 4404


async def test_another_origin_is_not_let_in(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with socket(server.pk, cookie, b"http://evil.example") as browser:
        assert (await browser.next())["type"] == "websocket.close"


async def test_a_snapshot_comes_at_once_and_deltas_carry_it_on(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes:
        first = state(5)
        await writes.write(server.pk, first, None)
        async with socket(server.pk, cookie) as browser:
            assert await browser.next_json() == {"type": "snapshot", "state": first}
            change = delta(6, health={"state": "down"})
            await writes.write(server.pk, apply(first, change), change)
            assert await browser.next_json() == {"type": "delta", **change}


async def test_a_frame_older_than_the_snapshot_is_not_sent(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, cookie) as browser:
            assert (await browser.next_json())["state"]["seq"] == 5
            await writes.write(server.pk, state(5), delta(4))
            await writes.write(server.pk, state(6), delta(6))
            assert (await browser.next_json())["seq"] == 6


async def test_case_29_a_lost_frame_leads_to_a_snapshot(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, cookie) as browser:
            await browser.next_json()
            await writes.write(server.pk, state(8), delta(8))
            message = await browser.next_json()
            assert (message["type"], message["state"]["seq"]) == ("snapshot", 8)


async def test_a_resync_is_answered_with_a_snapshot_and_nonsense_with_nothing(
    server: Server, cookie: str, valkey: ValkeyProcess
) -> None:
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, cookie) as browser:
            await browser.next_json()
            for nonsense in ("{", "[]", '{"type": "resync"}' + " " * 2000, '{"type": 3}'):
                browser.send(nonsense)
            browser.send(data=b"\x00")
            assert await browser.is_quiet(0.3)
            browser.send('{"type": "resync"}')
            assert (await browser.next_json())["type"] == "snapshot"


async def test_without_an_observer_it_says_so_until_one_writes(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes, socket(server.pk, cookie) as browser:
        assert await browser.next_json() == {"type": "stale", "text": NO_OBSERVER}
        assert await browser.is_quiet(0.5)
        await writes.write(server.pk, state(1), None)
        assert (await browser.next_json(timeout=2))["type"] == "snapshot"


async def test_a_state_that_nobody_writes_on_is_shown_and_called_old(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes:
        await writes.write(server.pk, state(5, t=time() - 30), None)
        async with socket(server.pk, cookie) as browser:
            assert (await browser.next_json())["type"] == "snapshot"
            told = await browser.next_json()
            assert (told["type"], told["text"]) == ("stale", STOPPED)
            assert 30 <= told["age_s"] < 40


async def test_more_than_six_silent_seconds_do_not_break_the_feed(server: Server, cookie: str, valkey: ValkeyProcess) -> None:
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, cookie) as browser:
            await browser.next_json()
            await asyncio.sleep(6.5)
            await writes.write(server.pk, state(6), delta(6))
            assert (await browser.next_json(timeout=2))["seq"] == 6


async def test_case_29_a_slow_browser_delays_nobody_and_gets_a_snapshot(
    server: Server, cookie: str, valkey: ValkeyProcess
) -> None:
    last = 5 + 10 * OUTBOX
    async with observer() as writes, socket(server.pk, cookie) as slow, socket(server.pk, cookie) as fast:
        assert (await slow.next_json())["type"] == (await fast.next_json())["type"] == "stale"
        await writes.write(server.pk, state(5), None)
        assert (await slow.next_json())["type"] == (await fast.next_json())["type"] == "snapshot"
        slow.flowing.clear()
        for seq in range(6, last + 1):
            await writes.write(server.pk, state(seq), delta(seq))
            await asyncio.sleep(0.005)
        await fast.until(lambda: fast.messages()[-1].get("seq") == last)
        assert [message["seq"] for message in fast.messages() if message["type"] == "delta"] == list(range(6, last + 1))
        stuck_at = len(slow.messages())
        slow.flowing.set()
        await slow.until(lambda: slow.messages()[-1].get("state", slow.messages()[-1]).get("seq") == last)
        caught_up = slow.messages()[stuck_at:]
        assert any(message["type"] == "snapshot" for message in caught_up)
        assert len(caught_up) <= OUTBOX + 3


@pytest.fixture
def own_valkey(settings: Settings) -> Iterator[ValkeyProcess]:
    with running_valkey() as process:
        point_at(settings, process.url)
        yield process


async def test_the_feed_outlives_a_valkey_that_went_away(
    server: Server, cookie: str, own_valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerFeed, "watch_s", 0.3)
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, cookie) as browser:
            await browser.next_json()
            await asyncio.to_thread(own_valkey.stop)
            assert await browser.next_json(timeout=5) == {"type": "stale", "text": NO_VALKEY}
            await asyncio.to_thread(own_valkey.start)
            async with asyncio.timeout(5):
                while not await writes.write(server.pk, state(9), delta(9)):
                    await asyncio.sleep(0.1)
            message = await browser.next_json(timeout=5)
            while message["type"] == "stale":
                message = await browser.next_json(timeout=5)
            assert message["state"]["seq"] == 9
            seq = 9
            async with asyncio.timeout(10):  # the layer subscribes again within a few seconds
                while message["type"] != "delta":
                    seq += 1
                    await writes.write(server.pk, state(seq), delta(seq))
                    message = await browser.next_json(timeout=5)


async def test_a_socket_opened_while_valkey_is_away_is_told_to_come_again(server: Server, cookie: str) -> None:
    async with socket(server.pk, cookie) as browser:
        assert await browser.next_json() == {"type": "stale", "text": NO_VALKEY}
        assert (await browser.next())["code"] == 1013
