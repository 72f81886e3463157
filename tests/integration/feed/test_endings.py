"""A live page that is open ends soon after whatever let its browser in is gone; others go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from dashboard.asgi import application
from dashboard.feed.guard import Guard
from dashboard.people import links
from dashboard.people.models import Membership, ServerGroup, ShareLink
from scheduler_api.frames import apply
from scheduler_api.models import Server
from tests.conftest import client_of
from tests.integration.feed.test_consumers import LOCAL, delta, observer, socket, state
from tests.support.valkey import ValkeyProcess
from tests.support.websocket import AsgiSocket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "every_s", 0.05)


@pytest.fixture
def server() -> Server:
    return Server.objects.create(name="local", kind="engine", base_url="http://127.0.0.1:1")


def cookie_of(user: User) -> str:
    return client_of(user).cookies[settings.SESSION_COOKIE_NAME].value


def deactivated(user: User, key: str) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def signed_out(user: User, key: str) -> None:
    Session.objects.filter(session_key=key).delete()


def expired(user: User, key: str) -> None:
    Session.objects.filter(session_key=key).update(expire_date=timezone.now() - timedelta(seconds=1))


def another_password(user: User, key: str) -> None:
    user.set_password("something else entirely")
    user.save()


def without_role(user: User, key: str) -> None:
    Membership.objects.filter(user=user).delete()


@pytest.mark.parametrize(
    ("end", "code"), [(deactivated, 4401), (signed_out, 4401), (expired, 4401), (another_password, 4401), (without_role, 4404)]
)
async def test_it_ends_with_what_let_it_in(
    server: Server, viewer: User, operator: User, valkey: ValkeyProcess, end: Callable[[User, str], None], code: int
) -> None:
    keys = [await database_sync_to_async(cookie_of)(each) for each in (viewer, operator)]
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with socket(server.pk, keys[0]) as ended, socket(server.pk, keys[1]) as stays:
            assert (await ended.next_json())["type"] == (await stays.next_json())["type"] == "snapshot"
            await database_sync_to_async(end)(viewer, keys[0])
            assert (await ended.next()).get("code") == code
            assert await stays.is_quiet(0.2)


async def test_the_server_of_another_group_is_not_there(server: Server, viewer: User, valkey: ValkeyProcess) -> None:
    await database_sync_to_async(without_role)(viewer, "")
    async with socket(server.pk, await database_sync_to_async(cookie_of)(viewer)) as browser:
        await browser.next()
        assert (await browser.next())["code"] == 4404


def shared(link: ShareLink, secret: str) -> AsgiSocket:
    headers = [(b"host", b"127.0.0.1"), (b"origin", LOCAL), (b"cookie", f"{links.cookie_name(link.pk)}={secret}".encode())]
    return AsgiSocket(application, f"/ws/shared/{link.pk}/", headers)


def is_revoked(link: ShareLink) -> None:
    links.revoke(link)


def is_over(link: ShareLink) -> None:
    ShareLink.objects.filter(pk=link.pk).update(expires_at=timezone.now())


def its_maker_lost_the_role(link: ShareLink) -> None:
    Membership.objects.update(role="viewer")


@pytest.mark.parametrize("end", [is_revoked, is_over, its_maker_lost_the_role])
async def test_a_share_link_shows_the_feed_until_it_ends(
    server: Server, operator: User, valkey: ValkeyProcess, end: Callable[[ShareLink], None]
) -> None:
    link, secret = await database_sync_to_async(links.make)(operator, server=server, lasts=timedelta(hours=1))
    async with observer() as writes:
        await writes.write(server.pk, state(5), None)
        async with shared(link, secret) as browser:
            assert (await browser.next_json())["type"] == "snapshot"
            await database_sync_to_async(end)(link)
            assert (await browser.next())["code"] == 4410


async def test_a_link_tells_neither_where_the_server_is_nor_who_watches_it(
    server: Server, operator: User, valkey: ValkeyProcess
) -> None:
    link, secret = await database_sync_to_async(links.make)(operator, server=server, lasts=timedelta(hours=1))
    first = state(5, server={"id": server.pk, "name": "local", "kind": "engine", "url": "http://10.1.2.3:1"}, observer="atlas:1")
    async with observer() as writes:
        await writes.write(server.pk, first, None)
        async with shared(link, secret) as browser:
            snapshot = await browser.next_json()
            assert (snapshot["type"], snapshot["state"]["server"]["url"], snapshot["state"]["observer"]) == ("snapshot", "", "")
            change = delta(6, observer="cirrus:2")
            await writes.write(server.pk, apply(first, change), change)
            assert (await browser.next_json())["state"]["seq"] == 6
            change = delta(7, health={"state": "down"})
            await writes.write(server.pk, apply(first, change), change)
            assert (await browser.next_json())["type"] == "delta"
            assert not any(word in str(browser.sent) for word in ("10.1.2.3", "atlas", "cirrus"))


async def test_another_secret_opens_nothing(server: Server, operator: User, valkey: ValkeyProcess) -> None:
    link, _ = await database_sync_to_async(links.make)(operator, server=server, lasts=timedelta(hours=1))
    async with shared(link, "another") as browser:
        await browser.next()
        assert (await browser.next())["code"] == 4410


def test_nobody_needs_more_than_a_group_to_see_its_servers(server: Server, viewer: User) -> None:
    from dashboard.people import sockets

    without_role(viewer, "")
    group = ServerGroup.objects.create(name="lab")
    group.servers.add(server)
    Membership.objects.create(user=viewer, group=group, role="viewer")
    key = cookie_of(viewer)
    ticket = sockets.Ticket(server.pk, viewer.pk, key, viewer.get_session_auth_hash())
    assert sockets.ended([ticket]) == {}
    group.servers.clear()
    assert sockets.ended([ticket]) == {ticket: 4404}
