"""The API asked with Django's client: by a session, or by a token; a server whose policy is kept by a fake."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from dashboard.people import tokens
from dashboard.people.models import Scope
from scheduler_api.api_problems import MEDIA_TYPE
from scheduler_api.models import Server
from tests.conftest import client_of
from tests.support.sample_states import Json, example
from tests.unit.dashboard.conftest import KEY, fake, states

__all__ = ["fake", "states"]

Show = Callable[[str], Server]


@pytest.fixture
def shown(db: None, states: dict[int, Json]) -> Show:
    """Registers a server and gives it the example state of that name."""

    def show(name: str) -> Server:
        state = example(name, time.time())
        server = Server.objects.create(
            name=name, kind=state["server"]["kind"], base_url="http://127.0.0.1:1", api_key=KEY, enabled=False
        )
        states[server.pk] = state | {"server": state["server"] | {"id": server.pk}}
        return server

    return show


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


@dataclass
class Asking:
    client: Client

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        """The JSON of the answer, whose status is checked; problems have their media type."""
        given = {
            "content_type": "application/json",
            "query_params": {name.rstrip("_"): str(value) for name, value in query.items()},
        }
        answer = self.client.generic(method, f"/api/{path}", "" if body is None else json.dumps(body), **given)  # type: ignore[arg-type]
        assert answer.status_code == status, (answer.status_code, answer.content)
        if status >= 400:
            assert answer.headers["Content-Type"] == MEDIA_TYPE
            assert answer.json()["status"] == status
        return answer.json() if answer.content else None

    def get(self, path: str, **query: Any) -> Any:
        return self("GET", path, **query)


@pytest.fixture
def ask(operator: User) -> Asking:
    """As an operator of all servers."""
    return Asking(client_of(operator))


@pytest.fixture
def ask_viewer(viewer: User) -> Asking:
    return Asking(client_of(viewer))


@pytest.fixture
def ask_with(operator: User) -> Callable[[Scope], Asking]:
    """With a token of an operator's."""

    def made(scope: Scope) -> Asking:
        return Asking(Client(True, headers={"authorization": f"Bearer {tokens.make(operator, 'nightly', scope)[1]}"}))

    return made


@pytest.fixture
def server(shown: Show) -> Server:
    return shown("busy")
