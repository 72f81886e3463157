"""Every address of the console asked by each role, against access_table.py. One that is not in the table fails here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from dashboard.feed.routing import ROUTES
from dashboard.people import links, tokens
from dashboard.people.models import Membership, Scope, ServerGroup
from scheduler_api.alerts.models import Alert, Recipient, Rule, Silence
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies.models import PolicyWindow
from tests.conftest import client_of
from tests.support.sample_rows import make_run
from tests.support.sample_states import Json
from tests.unit.dashboard.access_table import PEOPLE, TABLE
from tests.unit.dashboard.conftest import KEY
from workers.models import StoredScenario

ALIASES = {"account_login": "login", "mfa_index": "settings"}
#: tests/integration/feed/test_endings.py opens these, with and without the right to.
SOCKETS = {"ws/servers/<int:pk>/", "ws/shared/<int:pk>/"}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    method: str
    outcomes: dict[str, str]


def rows() -> list[Row]:
    found = []
    for line in TABLE.splitlines():
        if line.strip():
            name, method, *outcomes = line.split()
            assert len(outcomes) == len(PEOPLE), line
            found.append(Row(name, method, dict(zip(PEOPLE, outcomes, strict=True))))
    return found


def addresses(resolver: URLResolver | None = None, space: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Every pattern there is, under its full name."""
    for entry in (resolver or get_resolver()).url_patterns:
        if isinstance(entry, URLResolver):
            yield from addresses(entry, f"{entry.namespace}:" if entry.namespace else space)
        else:
            assert entry.name, f"{entry.pattern} has no name"
            yield space + entry.name, entry


def test_every_address_is_in_the_table() -> None:
    there = {ALIASES.get(name, name) for name, _ in addresses()}
    listed = {row.name for row in rows()}
    assert there - listed == set(), "add these to the table above, each with who is let in"
    assert listed - there == set(), "these are gone"


def test_every_socket_is_in_the_table() -> None:
    assert set(ROUTES) == SOCKETS


#: What the API takes, where it takes anything: a wrong body is told before a missing role.
BODIES: dict[str, Json] = {
    "api:switch_policy": {"set": {}, "reason": "why"},
    "api:review_policy": {"set": {}},
    "api:add_window": {"name": "n", "inside": {}},
    "api:change_window": {"enabled": False},
    "api:add_preset": {"name": "n", "values": {"phase": "barrier"}},
    "api:add_silence": {"minutes": 5, "reason": "why"},
    "api:check_scenario": {"text": "name: x"},
    "api:add_scenario": {"text": "name: x"},
    "api:change_scenario": {"text": "name: x"},
    "api:start_run": {"scenario": "warm-behind-cold"},
}
OF_A_SERVER = {"api:add_silence", "api:start_run"}

type Get = Callable[[str], Client]


@pytest.fixture
def numbers(db: None, admin: User, states: dict[int, Json]) -> dict[str, dict[str, Any]]:
    """What the addresses are filled in with, by how they begin: one thing of each kind, on one server."""
    server = Server.objects.create(name="local", kind="engine", base_url="http://127.0.0.1:1", api_key=KEY, enabled=False)
    lab, other = (ServerGroup.objects.create(name=name) for name in ("lab", "other"))
    lab.servers.add(server)
    other.servers.add(Server.objects.create(name="elsewhere", kind="vllm", base_url="http://127.0.0.1:2", enabled=False))
    for name in PEOPLE[1:-1]:
        user = User.objects.create_user(name, password="long enough")
        group, role = (other, "admin") if name == "other" else (lab, name.removeprefix("group_"))
        Membership.objects.create(user=user, group=group, role=role)
    now = timezone.now()
    rule = Rule.objects.create(kind="starving", server=server)
    alert = Alert.objects.create(
        rule=rule, server=server, kind="starving", severity="warning", began_at=now, opened_at=now, last_seen_at=now, text="x"
    )
    silence = Silence.objects.create(server=server, until=now + timedelta(hours=1), by=admin, by_name="ada", reason="x")
    recipient = Recipient.objects.create(name="ops", channel="webhook", address=f"http://127.0.0.1:1/{KEY}", secret=KEY)
    change = PolicyChange.objects.create(server=server, actor_name="ada", outcome="applied", version=1)
    window = PolicyWindow.objects.create(server=server, name="nights", since=now, starts_at=now, ends_at=now)
    run = make_run(server, admin, pairs=1)
    StoredScenario.objects.create(name="mine", text="name: mine")
    token, _ = tokens.make(admin, "nightly", Scope.READ)
    link, _ = links.make(admin, server=server, lasts=timedelta(hours=1))
    return {
        "alerts/rules/": {"pk": rule.pk},
        "alerts/recipients/": {"pk": recipient.pk},
        "alerts/silences/": {"pk": silence.pk},
        "alerts/strip/": {"pk": server.pk},
        "alerts/": {"pk": alert.pk},
        "experiments/": {"pk": run.pk},
        "settings/people/": {"pk": User.objects.get(username="viewer").pk},
        "settings/groups/": {"pk": other.pk},
        "settings/tokens/": {"pk": token.pk},
        "settings/shares/": {"pk": link.pk},
        "settings/sessions/": {"pk": 12_345},
        "shared/": {"pk": link.pk, "part": "detail"},
        "scenarios/": {"name": "mine"},
        "welcome/": {"uidb64": "x", "token": "y"},
        "login/oidc/": {"provider_id": "oidc"},
        "servers/": {"pk": server.pk, "change": change.pk, "window": window.pk},
        "policies/presets/": {"key": "as-llama-server"},
        "api/": {
            "server_id": server.pk,
            "alert_id": alert.pk,
            "silence_id": silence.pk,
            "window_id": window.pk,
            "drift_id": 12_345,
            "guard_id": 12_345,
            "run_id": run.pk,
            "key": "as-llama-server",
            "name": "mine",
            "rest": "nothing/here",
        },
    }


def filled(name: str, numbers: dict[str, dict[str, Any]]) -> str:
    """The address, filled in with the numbers of the longest beginning that fits."""
    plain = dict(addresses())
    wanted = plain[name].pattern.converters
    begins = "api/" if name.startswith("api:") else str(plain[name].pattern)
    fit = max((each for each in numbers if begins.startswith(each)), key=len, default="")
    values = numbers.get(fit, {})
    names = wanted or ({"server_id": 0} if "<server_id>" in str(plain[name].pattern) else {})
    return reverse(name, kwargs={key: values[key] for key in names} or None)


def outcome(response: HttpResponse) -> str:
    status = response.status_code
    assert status < 500 or status == 502, f"{status}: {response.content[:300]!r}"
    if status == 302 and response.headers["Location"].startswith(reverse("login")):
        return "login"
    return {401: "401", 403: "no", 404: "none"}.get(status, "in")


class Asking:
    """Asks as one person, who is logged in once. What a write did is undone, and the next one finds what this one found."""

    def __init__(self, user: User | None, numbers: dict[str, dict[str, Any]]) -> None:
        self.client = client_of(user) if user else Client()
        self.cookies = {name: morsel.value for name, morsel in self.client.cookies.items()}
        self.numbers = numbers

    def ask(self, name: str, method: str) -> HttpResponse:
        path = filled(name, self.numbers) + ("?slot=0" if name == "api:stall" else "")
        sent = BODIES.get(name, {}) | ({"server": self.numbers["api/"]["server_id"]} if name in OF_A_SERVER else {})
        body = {"data": json.dumps(sent), "content_type": "application/json"} if name.startswith("api:") else {}
        call = getattr(self.client, method.lower())
        if method == "GET":
            answer: HttpResponse = call(path)
        else:
            with transaction.atomic():
                answer = call(path, **body)
                transaction.set_rollback(True)
        self.client.cookies = SimpleCookie(self.cookies)
        return answer


@pytest.mark.parametrize("person", PEOPLE)
def test_who_is_let_in_and_that_nobody_is_shown_a_key(person: str, numbers: dict[str, dict[str, Any]], admin: User) -> None:
    user = None if person == "anonymous" else admin if person == "admin" else User.objects.get(username=person)
    asking = Asking(user, numbers)
    wrong = []
    for row in rows():
        answer = asking.ask(row.name, row.method)
        got = outcome(answer)
        if got != row.outcomes[person]:
            wrong.append(f"{row.name} {row.method}: {got}, should be {row.outcomes[person]}")
        if KEY.encode() in b"".join(answer):  # of a stream too
            wrong.append(f"{row.name} {row.method} shows a key")
    assert wrong == [], "\n".join(wrong)


def test_other_methods_than_those_listed_do_nothing(numbers: dict[str, dict[str, Any]], admin: User) -> None:
    listed = {(filled(row.name, numbers), row.method) for row in rows()}  # of the API one address has several names
    asking = Asking(admin, numbers)
    lenient = {"logout", "welcome", "api:openapi-json"}  # these take any method as the one that they have
    for name in {filled(name, numbers): name for name in {row.name for row in rows()} - lenient}.values():
        for method in {"GET", "POST", "DELETE"} - {method for path, method in listed if path == filled(name, numbers)}:
            status = asking.ask(name, method).status_code
            assert status in (405, 404, 302), f"{method} {name}: {status}"


def test_a_token_that_may_read_writes_nothing_over_the_api(numbers: dict[str, dict[str, Any]], admin: User) -> None:
    """Whatever its person may: each write that the table lets an admin in for."""
    asking = Asking(None, numbers)
    asking.client = Client(headers={"authorization": f"Bearer {tokens.make(admin, 'reader', Scope.READ)[1]}"})
    writes = [row for row in rows() if row.name.startswith("api:") and row.method != "GET" and row.outcomes["admin"] == "in"]
    assert len(writes) >= 15
    assert {row.name: outcome(asking.ask(row.name, row.method)) for row in writes} == {row.name: "no" for row in writes}
    assert outcome(asking.ask("api:list_audit", "GET")) == "in"
