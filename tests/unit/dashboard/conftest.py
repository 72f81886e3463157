"""Servers whose live state a test chooses."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from scheduler_api import live, policies
from scheduler_api.models import Server
from scheduler_api.policies import switching
from tests.support.fake_policies import FakePolicies
from tests.support.sample_states import Json, example

KEY = "a-key-that-no-page-may-show"


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[int, Json]:
    """What the observer wrote, by server id; empty at first."""
    written: dict[int, Json] = {}
    monkeypatch.setattr(live, "read_many", lambda ids: {pk: written[pk] for pk in ids if pk in written})
    return written


@pytest.fixture
def shown(db: None, states: dict[int, Json]) -> Callable[[str], Server]:
    """Registers a server and gives it the example state of that name."""

    def show(name: str) -> Server:
        state = example(name, time.time())
        server = Server.objects.create(
            name=name, kind=state["server"]["kind"], base_url="http://127.0.0.1:1", api_key=KEY, enabled=False
        )
        states[server.pk] = state | {"server": state["server"] | {"id": server.pk}}
        return server

    return show


@pytest.fixture
def fake(server: Server, states: dict[int, Json], monkeypatch: pytest.MonkeyPatch) -> FakePolicies:
    """Of the policies of the test's `server`."""
    made = FakePolicies(states[server.pk]["policy"])
    for name in ("read_policy", "dry_run", "switch"):
        monkeypatch.setattr(policies, name, getattr(made, name))
    monkeypatch.setattr(switching, "switch", made.switch)  # for its neighbours in the package
    return made
