"""Several observers on one registry: one watches each server, whoever dies, stands still or loses Valkey."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest
import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from pytest_django.fixtures import Settings

from scheduler_api import live
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert
from scheduler_api.models import Server
from scheduler_api.observer import alerting, claims, holding, overview, policing, service
from scheduler_api.observer.leases import ALERTS, Lease, Leases, Owner, lease_key, of_server
from scheduler_api.observer.models import ObserverClaim
from scheduler_api.observer.publisher import Publisher
from scheduler_api.observer.service import Observer
from scheduler_api.policies.models import PolicyDrift, PolicySeen
from tests.conftest import point_at
from tests.integration.scheduler_api.conftest import frames_of, register
from tests.support.alerts import rule
from tests.support.observers import claimed, hold
from tests.support.stub_servers import FakeEngine, running, unused_port
from tests.support.valkey import ValkeyProcess, running_valkey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

LEASE_S = 1.0
NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REGISTRY_S", 0.1)
    monkeypatch.setattr(holding, "ROUND_S", 0.1)
    monkeypatch.setattr(holding, "CALM_S", 0.3)
    for looks in (alerting, overview, policing):
        monkeypatch.setattr(looks, "READ_S" if looks is overview else "LOOK_S", 0.1)


@dataclass
class Running:
    """An observer in this loop."""

    observer: Observer
    task: asyncio.Task[None]

    def watches(self) -> set[int]:
        return set(self.observer.watched)

    def lease(self, server: Server) -> Lease | None:
        return self.observer.publisher.leases.lease(of_server(server.pk))

    def leads(self) -> bool:
        return self.observer.publisher.leases.holds(ALERTS)

    async def die(self) -> None:
        """All at once, and nothing of its giving up reaches Valkey."""
        self.observer.publisher.leases.client = redis.asyncio.Redis.from_url(NOBODY)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def observing(name: str, born: int) -> AsyncIterator[Running]:
    async with live.async_client(settings.REDIS_URL) as client:
        observer = Observer(Publisher(client, Leases(client, Owner(born, name, "x"), LEASE_S)))
        running = Running(observer, asyncio.create_task(observer.run()))
        try:
            yield running
        finally:
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)
            await get_channel_layer().flush()


async def until(condition: Callable[[], object], timeout: float = 8.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.02)


def told_by(server_id: int) -> str:
    """The observer that the stored state names."""
    return str((live.read_many([server_id]).get(server_id) or {}).get("observer"))


async def a_few(n: int) -> list[Server]:
    return [await sync_to_async(register)(f"s{i}", "engine", f"http://127.0.0.1:{unused_port()}") for i in range(n)]


class StandsStill:
    """An observer in a thread of its own, whose loop can be held up as SIGSTOP holds up a process."""

    def __init__(self, name: str, born: int) -> None:
        self.name, self.born = name, born
        self.loop: asyncio.AbstractEventLoop | None = None
        self.inside: Running | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        async with observing(self.name, self.born) as self.inside:
            await self.over.wait()

    @contextmanager
    def running(self) -> Iterator[StandsStill]:
        self.thread.start()
        try:
            yield self
        finally:
            assert self.loop is not None
            self.loop.call_soon_threadsafe(self.over.set)
            self.thread.join(10)

    def stand_still(self, seconds: float) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(time.sleep, seconds)

    def watches(self) -> set[int]:
        return self.inside.watches() if self.inside is not None else set()


async def test_never_are_two_writers_accepted(valkey: ValkeyProcess) -> None:
    """Holders that renew, die, stand still and write on under old leases: what Valkey took is in the order of tokens."""
    draw, what, taken = random.Random(7), "server:1", 0
    async with live.async_client(valkey.url) as client:

        async def holder(born: int) -> None:
            nonlocal taken
            leases, old = Leases(client, Owner(born, f"h:{born}", "x"), 0.04), list[Lease]()
            while taken < 16:
                if (lease := await leases.take(what)) is not None:
                    old.append(lease)
                    taken += 1
                for _ in range(draw.randrange(6)):
                    if old:
                        lease = draw.choice(old[-3:])
                        await leases.write_under(lease, [("RPUSH", "log", lease.token)])
                        leases.keep(lease, 0.0)
                        await leases.renew(ready=True)
                    await asyncio.sleep(draw.choice((0.0, 0.005, 0.05)))
                if old and draw.random() < 0.3:
                    await leases.release([old[-1]])

        await asyncio.gather(*(holder(born) for born in range(5)))
        log = [int(token) for token in await client.lrange("log", 0, -1)]
    assert log == sorted(log)
    assert len(set(log)) > 3, "several of them got to write"


async def test_a_lease_outlives_a_valkey_without_memory_by_its_token(valkey: ValkeyProcess) -> None:
    async with live.async_client(valkey.url) as client:
        leases = Leases(client)
        before = await hold(leases, "server:1")
        valkey.flush()
        (forgotten,) = await leases.renew(ready=True)
        assert forgotten == before
        later = await leases.take("server:1")
        assert later is not None
        assert later.token > before.token
        assert not await leases.write("server:1", [("SET", "x", 1)]), "the old value is not the key's"


def test_an_older_holder_writes_nothing_to_the_database() -> None:
    first = claimed(of_server(1))
    with claims.fenced(first):
        Server.objects.create(name="by the first", kind="engine", base_url="http://127.0.0.1:1")
    second = claimed(of_server(1))
    with pytest.raises(claims.Lost), claims.fenced(first):
        Server.objects.create(name="too late", kind="engine", base_url="http://127.0.0.1:1")
    assert not claims.enter(first), "nor does it come back"
    assert not claims.enter(Lease(first.what, first.owner, second.token + 1), after=first)
    assert claims.enter(Lease(first.what, first.owner, second.token + 2), after=second)
    assert [server.name for server in Server.objects.all()] == ["by the first"]
    assert (claims.stands(second), claims.stands(None)) == (False, False)


def test_a_holder_without_valkey_is_waited_for() -> None:
    first = claimed(of_server(1))
    assert claims.go_on([first], 0.3) == {first.token}
    second = Lease(first.what, Owner(2, "b:1", "y"), first.token + 1)
    assert not claims.enter(second)
    time.sleep(0.35)
    assert claims.enter(second)
    assert claims.go_on([first], 60) == set()


async def test_a_newcomer_gets_its_share_and_a_dead_ones_servers_are_taken_up() -> None:
    every = {server.pk for server in await a_few(5)}
    async with observing("a:1", 1) as first:
        await until(lambda: first.watches() == every)
        async with observing("b:2", 2) as second:
            await until(lambda: len(first.watches()) == 3 and len(second.watches()) == 2)
            assert not first.watches() & second.watches()
            (moved, *_) = second.watches()
            await until(lambda: told_by(moved) == "b:2")
            await first.die()
            await until(lambda: second.watches() == every)
            await until(lambda: all(told_by(pk) == "b:2" for pk in every))
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            assert not client.keys(lease_key("server:*")), "an observer that ends rightly leaves nothing to wait for"


async def test_one_that_stood_still_spoils_nothing_and_takes_part_again() -> None:
    with running(FakeEngine()) as engine, StandsStill("a:1", 1).running() as first:
        server = await sync_to_async(register)("local", "engine", engine.url)
        async with frames_of(server) as frames, observing("b:2", 2) as second:
            await until(lambda: first.watches() == {server.pk} and told_by(server.pk) == "a:1")
            first.stand_still(LEASE_S * 1.8)
            await until(lambda: second.watches() == {server.pk} and told_by(server.pk) == "b:2")
            await until(lambda: first.watches() == {server.pk} and not second.watches())
            await until(lambda: told_by(server.pk) == "a:1")
            numbers = [frame["seq"] for frame in frames]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each number was accepted once, in order"
        assert not await sync_to_async(PolicyDrift.objects.exists)(), "what changed hands is the same policy"


async def test_an_observer_whose_claim_is_gone_from_the_database_enters_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restore of the database, which keeps none."""
    monkeypatch.setattr(policing, "GRACE_S", 0.1)
    with running(FakeEngine()) as engine:
        server = await sync_to_async(register)("local", "engine", engine.url)
        row = ObserverClaim.objects.filter(what=of_server(server.pk))
        async with observing("a:1", 1) as first:
            await until(lambda: told_by(server.pk) == "a:1")
            await sync_to_async(row.delete)()
            engine.version += 1
            engine.tell()
            async with asyncio.timeout(8):
                while (lease := first.lease(server)) is None or not await sync_to_async(claims.stands)(lease):
                    await asyncio.sleep(0.05)
                while not await PolicySeen.objects.filter(server=server, version=engine.version).aexists():
                    await asyncio.sleep(0.05)


async def test_alerts_are_one_observers_for_all_and_go_on_with_the_next() -> None:
    port = unused_port()
    servers = [await sync_to_async(register)("local", "engine", f"http://127.0.0.1:{port}"), *await a_few(1)]
    await sync_to_async(rule)(Kind.DOWN, threshold_s=300.0, for_s=0.3, clear_s=0.5)

    async def alerts(condition: Callable[[list[Alert]], object]) -> list[Alert]:
        async with asyncio.timeout(8):
            while not condition(found := await sync_to_async(lambda: list(Alert.objects.order_by("server_id")))()):
                await asyncio.sleep(0.05)
        return found

    async with observing("a:1", 1) as first, observing("b:2", 2) as second:
        await until(lambda: len(first.watches()) == len(second.watches()) == 1 and (first.leads() or second.leads()))
        (leader,) = (each for each in (first, second) if each.leads())
        other = second if leader is first else first
        found = await alerts(lambda found: len(found) == 2)
        assert [alert.server_id for alert in found] == [server.pk for server in servers], "of the one it does not watch, too"
        await leader.die()
        await until(lambda: other.leads() and len(other.watches()) == 2)
        with running(FakeEngine(), port):
            found = await alerts(lambda found: found[0].closed_at is not None)
        assert [alert.closed_at is None for alert in found] == [False, True]


async def test_a_valkey_that_is_restarted_empty_moves_nothing(settings: Settings) -> None:
    (server,) = await a_few(1)
    with running_valkey() as own:
        point_at(settings, own.url)
        async with observing("a:1", 1) as first:
            await until(lambda: first.watches() == {server.pk} and told_by(server.pk) == "a:1")
            task, before = first.observer.watched[server.pk].task, first.lease(server)
            own.stop()
            await asyncio.sleep(LEASE_S * 1.5)
            assert before is not None
            assert first.lease(server) == before, "held in the database"
            newer = Lease(of_server(server.pk), Owner(9, "b:2", "y"), before.token + 1)
            assert not await sync_to_async(claims.enter)(newer), "another has to wait"
            own.start()
            await until(lambda: told_by(server.pk) == "a:1")
            after = first.lease(server)
            assert after is not None
            assert after.token > before.token
            assert first.observer.watched[server.pk].task is task, "it was watched all the time"
