"""Whether the server is still the one that a run began on, with a server that says so over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_api.models import Server, ServerKind
from tests.support.stub_servers import FakeEngine, running, unused_port
from workers import conducting, presence, recording
from workers.errors import RunFailed
from workers.lease import Watch
from workers.models import Run, RunState
from workers.presence import Presence


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with running(FakeEngine()) as engine:
        yield engine


@pytest.fixture
def watch() -> Watch:
    return Watch(0, "mine")


def server_of(fake: FakeEngine) -> Server:
    return Server(name="bench", kind=ServerKind.ENGINE, base_url=fake.url)


def test_the_same_process_has_not_restarted_and_another_one_has_once(fake: FakeEngine, watch: Watch) -> None:
    found = Presence(server_of(fake), watch, pytest.fail, told=True)
    assert found.restarted() is None
    fake.started_at = 2000.0
    assert found.another() is not None
    state = found.restarted()
    assert state is not None
    assert state["server"]["started_at"] == 2000.0
    assert found.restarted() is None  # known from now on
    assert found.another() is None


def test_a_server_that_still_loads_is_waited_for_and_said(fake: FakeEngine, watch: Watch) -> None:
    told: list[str] = []
    found = Presence(server_of(fake), watch, told.append, told=True)
    fake.loading, fake.started_at = True, 2000.0
    assert found.another() is None  # it does not say

    def ready() -> None:
        time.sleep(0.4)
        fake.loading = False

    threading.Thread(target=ready).start()
    assert found.restarted() is not None
    assert set(told) == {"The server does not answer; waiting for it to come back"}


def test_one_that_stays_away_fails_the_run(fake: FakeEngine, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BACK_WITHIN_S", 0.2)
    server = server_of(fake)
    found = Presence(server, watch, lambda _: None, told=True)
    server.base_url = f"http://127.0.0.1:{unused_port()}"
    with pytest.raises(RunFailed, match=r"bench has not come back within 0\.2 s"):
        found.restarted()


def test_of_servers_that_do_not_say_when_they_began_nothing_is_claimed(fake: FakeEngine, watch: Watch) -> None:
    found = Presence(server_of(fake), watch, pytest.fail, told=False)
    fake.started_at = 2000.0
    assert (found.restarted(), found.another()) == (None, None)
    assert not fake.seen


class FakeConductor(conducting.Conductor):
    """Fails in its work as a switch does that meets the policy of a new process."""

    during: Callable[[], Any] = staticmethod(lambda: None)

    def work(self) -> None:
        self.presence = Presence(self.run.server, self.watch, self.note, told=True)
        self.during()
        raise RunFailed("Somebody else changed the policy during the run (version 1).")

    def block(self, step: Any, reason: str) -> None: ...


@pytest.mark.parametrize("restart", [False, True])
def test_what_a_restart_brings_about_is_told_as_one(
    db: None, fake: FakeEngine, watch: Watch, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    server = server_of(fake)
    server.save()
    run = Run.objects.create(
        scenario="x", server=server, repetitions=1, seed=1, state=RunState.RUNNING, lease="mine", policy_version=7
    )
    conductor = FakeConductor(run, "mine", watch)
    conductor.during = lambda: setattr(fake, "started_at", 2000.0) if restart else None
    ended = SimpleNamespace(error="", version=0)

    def finish(run: Run, held: str, state: RunState, error: str, warnings: list[str]) -> None:
        ended.error, ended.version = error, run.policy_version

    monkeypatch.setattr(recording, "finish", finish)
    conductor.go()
    assert ended.error.startswith("The server restarted during the run. Somebody") == restart
    assert ended.version == (fake.version if restart else 7)  # so the policy found can be put back
