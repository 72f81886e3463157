"""Who sees which page, what a page never shows, and the address it stands at."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse, set_script_prefix

from scheduler_api.models import Server
from tests.support.sample_states import Json
from tests.unit.dashboard.conftest import KEY

OF_SERVER = ("server", "server-history", "policies")
OTHERS = ("overview", "overview-cards", "rail", "audit", "experiments", "definitions")
WRITES = ("policy-switch", "policy-review")
Show = Callable[[str], Server]


@pytest.mark.django_db
@pytest.mark.parametrize("name", OTHERS)
def test_a_viewer_sees_the_page(viewer_client: Client, states: dict[int, Json], name: str) -> None:
    assert viewer_client.get(reverse(name)).status_code == 200


@pytest.mark.parametrize("name", OF_SERVER)
@pytest.mark.parametrize("example", ["busy", "barrier", "unified", "stock", "down", "loading", "many", "idle"])
def test_a_viewer_sees_a_server_in_every_state(viewer_client: Client, shown: Show, name: str, example: str) -> None:
    response = viewer_client.get(reverse(name, args=[shown(example).pk]))
    assert response.status_code == 200
    assert example in response.text


@pytest.mark.parametrize("name", OF_SERVER)
def test_a_server_without_an_observer_says_how_to_start_one(
    viewer_client: Client, shown: Show, states: dict[int, Json], name: str
) -> None:
    server = shown("stock")
    states.clear()
    response = viewer_client.get(reverse(name, args=[server.pk]))
    assert response.status_code == 200
    assert name != "server" or "manage.py observe" in response.text


@pytest.mark.django_db
@pytest.mark.parametrize("name", [*OTHERS, "server-add"])
def test_a_stranger_is_sent_to_the_login(client: Client, name: str) -> None:
    response = client.get(reverse(name))
    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("name", WRITES)
def test_a_viewers_write_is_refused(viewer_client: Client, shown: Show, name: str) -> None:
    response = viewer_client.post(reverse(name, args=[shown("busy").pk]), {"set.phase": "barrier", "reason": "why"})
    assert response.status_code == 403
    assert "role operator" in response.text


@pytest.mark.parametrize("name", WRITES)
def test_writes_need_a_post(operator_client: Client, shown: Show, name: str) -> None:
    assert operator_client.get(reverse(name, args=[shown("busy").pk])).status_code == 405


@pytest.mark.parametrize("method", ["get", "post"])
def test_only_an_admin_registers_servers(operator_client: Client, admin_client: Client, method: str) -> None:
    assert getattr(operator_client, method)(reverse("server-add")).status_code == 403
    assert getattr(admin_client, method)(reverse("server-add")).status_code == (200 if method == "get" else 422)


def test_a_write_without_the_token_is_refused_in_words(operator: object, shown: Show) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator, backend="django.contrib.auth.backends.ModelBackend")  # type: ignore[arg-type]
    response = client.post(reverse("policy-switch", args=[shown("busy").pk]))
    assert response.status_code == 403
    assert "nothing was changed" in response.text


@pytest.mark.parametrize("name", OF_SERVER)
def test_no_page_shows_a_key(admin_client: Client, shown: Show, name: str) -> None:
    server = shown("idle")
    for page in (reverse(name, args=[server.pk]), reverse("overview"), reverse("audit"), f"/api/servers/{server.pk}"):
        assert KEY not in admin_client.get(page).text


def test_health_is_public_and_says_nothing_else(client: Client) -> None:
    response = client.get(reverse("health"))
    assert (response.status_code, response.text) == (200, "ok")


def policy_of(response: object) -> dict[str, str]:
    header = response.headers["Content-Security-Policy"]  # type: ignore[attr-defined]
    return dict(part.strip().split(" ", 1) for part in header.split(";"))


def test_scripts_come_from_here_alone_and_styles_are_no_exception(viewer_client: Client, shown: Show) -> None:
    plain = policy_of(viewer_client.get(reverse("overview")))
    chart = policy_of(viewer_client.get(reverse("server", args=[shown("busy").pk])))
    assert plain["style-src"] == "'self'"
    assert chart["style-src"] == "'self' 'unsafe-inline'"
    for policy in (plain, chart):
        assert "unsafe" not in policy["script-src"]
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"


@pytest.mark.parametrize("name", ["overview", "server", "server-history", "definitions", "policies", "audit"])
def test_no_page_needs_a_style_attribute(viewer_client: Client, shown: Show, name: str) -> None:
    server = shown("barrier")
    text = viewer_client.get(reverse(name, args=[server.pk] if name in OF_SERVER else [])).text
    assert " style=" not in text
    assert " onclick=" not in text


def test_everything_stands_under_the_url_prefix(viewer_client: Client, shown: Show) -> None:
    server = shown("busy")
    page = reverse("server", args=[server.pk])
    set_script_prefix("/ops/llm/")  # as the ASGI handler does; the test client does not
    try:
        text = viewer_client.get(page).text
    finally:
        set_script_prefix("/")
    assert f'data-feed="/ops/llm/ws/servers/{server.pk}/"' in text
    assert f'href="/ops/llm/servers/{server.pk}/policies/"' in text
    assert f'data-api="/ops/llm/api/servers/{server.pk}/"' in text
    assert f'data-runs="/ops/llm/servers/{server.pk}/runs/"' in text
    assert 'href="/ops/llm/definitions/#share"' in text
    assert 'action="/ops/llm/logout/"' in text


def test_a_page_carries_its_state_and_shows_it_without_scripts(
    viewer_client: Client, shown: Show, states: dict[int, Json]
) -> None:
    server = shown("barrier")
    text = viewer_client.get(reverse("server", args=[server.pk])).text
    start = text.index('<script id="state" type="application/json">') + len('<script id="state" type="application/json">')
    assert json.loads(text[start : text.index("</script>", start)]) == states[server.pk]
    rows = text[: text.index('<template id="t-slot">')]
    assert rows.count('role="row" data-slot=') == 4
    for slot in states[server.pk]["slots"]:
        assert slot["waiting_for"].replace("'", "&#x27;") in rows


@pytest.mark.parametrize(
    ("path", "status", "words"), [("/nowhere/", 404, "nothing at this address"), ("/servers/99/", 404, "Not here")]
)
def test_what_is_not_there_says_so(viewer_client: Client, path: str, status: int, words: str) -> None:
    response = viewer_client.get(path)
    assert response.status_code == status
    assert words in response.text


def test_too_many_wrong_passwords_lock_the_door_with_a_page_of_ours(client: Client, db: None) -> None:
    for _ in range(settings.AXES_FAILURE_LIMIT):
        answer = client.post(reverse("login"), {"username": "mira", "password": "wrong"})
    assert answer.status_code == 429
    assert "Wait 15 minutes" in answer.content.decode()
