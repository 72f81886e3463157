"""Cards: worst first, in words, for none, one and many servers; and registering a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard import cards
from scheduler_api import servers
from scheduler_api.alerts.kinds import Kind
from scheduler_api.exceptions import RegistrationRefused, ServerUnreachable
from scheduler_api.models import Server
from tests.support.alerts import alert, rule
from tests.support.sample_states import Json

Show = Callable[[str], Server]


def names(client: Client, **query: str) -> list[str]:
    response = client.get(reverse("overview-cards"), query)
    return [card.name for card in response.context["cards"]]


def test_trouble_comes_first(viewer_client: Client, shown: Show) -> None:
    for name in ("busy", "idle", "loading", "silent", "down", "unified"):
        shown(name)
    assert names(viewer_client) == ["down", "silent", "loading", "unified", "busy", "idle"]


def test_open_alerts_come_before_what_nobody_watches(viewer_client: Client, shown: Show, states: dict[int, Json]) -> None:
    server = {name: shown(name) for name in ("busy", "idle", "down", "silent", "unified", "wide")}
    del states[server["unified"].pk]
    alert(rule(Kind.QUEUE_AGE, severity="warning"), server["idle"])
    alert(rule(Kind.STUCK_SLOT, severity="critical"), server["busy"])
    assert names(viewer_client) == ["down", "busy", "silent", "idle", "unified", "wide"]


def test_a_server_nobody_watches_is_unknown_not_idle(viewer_client: Client, shown: Show, states: dict[int, Json]) -> None:
    shown("busy")
    states.clear()
    text = viewer_client.get(reverse("overview")).text
    assert "Not watched." in text
    assert "idle</span>" not in text.replace("</i></span>idle</span>", "")


def test_case_11_what_nobody_tells_of_any_more_is_unknown_and_not_serving(
    viewer_client: Client, shown: Show, states: dict[int, Json]
) -> None:
    """A killed observer leaves its last words behind for a minute."""
    for name in ("busy", "down"):
        server = shown(name)
        states[server.pk] |= {"t": states[server.pk]["t"] - 20}
    response = viewer_client.get(reverse("overview"))
    told = {card.name: card for card in response.context["cards"]}
    assert {card.state for card in told.values()} == {"unknown"}
    assert told["busy"].lead.startswith("Not reported for 2")
    assert told["busy"].words == "no observer tells of it now; it was last seen as: Serving."
    assert (told["busy"].queue, told["busy"].rates, set(told["busy"].cells)) == ("", "", {cards.UNKNOWN_CELL})
    assert response.text.count(": Not reported") == 2  # in the rail


@pytest.mark.django_db
def test_an_empty_overview_says_what_will_appear(viewer_client: Client, admin_client: Client) -> None:
    assert "an admin adds one" in viewer_client.get(reverse("overview")).text
    assert reverse("server-add") in admin_client.get(reverse("overview")).text


def test_fifty_servers_cost_as_many_queries_as_one(viewer_client: Client, shown: Show, states: dict[int, Json]) -> None:
    first = shown("busy")
    names(viewer_client)  # the first page of a sign-in also writes the session down
    with CaptureQueriesContext(connection) as one:
        assert names(viewer_client) == ["busy"]
    for number in range(49):
        server = Server.objects.create(name=f"copy-{number:02}", kind="engine", base_url="http://127.0.0.1:1", enabled=False)
        states[server.pk] = states[first.pk]
    with CaptureQueriesContext(connection) as fifty:
        assert len(names(viewer_client)) == 50
    assert len(fifty) == len(one)


def test_the_filter_and_the_search_narrow_the_cards(viewer_client: Client, shown: Show) -> None:
    for name in ("busy", "idle", "down"):
        shown(name)
    assert names(viewer_client, only="down") == ["down"]
    assert names(viewer_client, q="BU") == ["busy"]


def test_the_total_counts_slots_that_cannot_be_seen_as_unknown(shown: Show, states: dict[int, Json]) -> None:
    listed = [shown(name) for name in ("busy", "down")]
    now = states[listed[0].pk]["t"]
    busy = sum(slot["state"] != "idle" for slot in states[listed[0].pk]["slots"])
    text = cards.total(cards.of(listed, states, {}, now))
    assert text.startswith(f"2, worst first. 8 slots: {busy} busy, {4 - busy} idle, 4 unknown.")


def test_many_slots_share_the_cells_of_the_bar(shown: Show, states: dict[int, Json]) -> None:
    server = shown("many")
    card = cards.card(server, states[server.pk], None, states[server.pk]["t"])
    assert len(card.cells) == cards.MOST_CELLS
    assert card.load.endswith("of 256 busy")


@pytest.mark.parametrize(
    ("state", "text", "lead", "calm"),
    [
        ("not_serving", "Up but not serving, no token for 3 min", "Up but not serving, no token for 3 min:", False),
        ("sleeping", "Asleep", "Asleep for 1 min 15 s:", True),
        ("silent", "Busy, no answer for 42 s", "Busy, no answer for 42 s:", False),
    ],
)
def test_case_18_a_server_that_answers_and_does_not_serve_is_trouble_and_one_asleep_is_not(
    shown: Show, states: dict[int, Json], state: str, text: str, lead: str, calm: bool
) -> None:
    server = shown("idle")
    told = states[server.pk]
    told["health"] |= {"state": state, "text": text, "detail": "5 wait", "since": told["t"] - 75}
    card = cards.card(server, told, None, told["t"])
    assert (card.lead, card.calm, card.frame == "") == (lead, calm, calm)


GIVEN = {"name": "forge", "base_url": "http://127.0.0.1:9", "kind": "auto", "api_key": "secret"}


def test_an_admin_registers_a_server(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def register(name: str, base_url: str, kind: str, api_key: str, by: Any, *, quiet: bool, model: str) -> Server:
        asked.append((name, base_url, kind, api_key, by.get_username(), quiet, model))
        return Server.objects.create(name=name, kind="engine", base_url=base_url, enabled=False)

    monkeypatch.setattr(servers, "register", register)
    response = admin_client.post(reverse("server-add"), GIVEN | {"quiet": "on", "model": "large"})
    assert response.headers["Location"] == reverse("server", args=[Server.objects.get().pk])
    assert asked == [("forge", "http://127.0.0.1:9", "auto", "secret", "ada", True, "large")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RegistrationRefused("Another server is already called forge.", "name"), "already called forge"),
        (ServerUnreachable("http://127.0.0.1:9 cannot be used: connection refused."), "connection refused"),
    ],
)
def test_a_refused_registration_stands_at_its_field(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def register(*_: Any, **more: Any) -> Server:
        raise error

    monkeypatch.setattr(servers, "register", register)
    response = admin_client.post(reverse("server-add"), GIVEN)
    assert response.status_code == 422
    assert words in response.text
    assert "secret" not in response.text
    assert Server.objects.count() == 0
