"""Logging in with a second factor, the one-time link, sessions, and what an admin does with people."""

from __future__ import annotations

import re
import time
from importlib import import_module

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from allauth.mfa.utils import decrypt
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse, set_script_prefix
from django.utils import timezone

from dashboard.people import services
from dashboard.people.models import Membership, ServerGroup
from scheduler_api.alerts.models import Alert, Recipient, Rule
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from tests.conftest import client_of

PASSWORD = "mira-password"
AGENTS = ("Firefox/140 Linux", "Chrome/150 Android", "curl")


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


def logged_in(client: Client) -> bool:
    return client.get(reverse("settings")).status_code == 200


def log_in(client: Client, name: str = "mira", password: str = PASSWORD) -> str:
    """Where it leads."""
    answer = client.post(reverse("login"), {"username": name, "password": password})
    return answer.headers.get("Location", "")


def code_now(secret: str, ahead: int = 1) -> str:
    """A code works once. The one that sets the factor up is the present one, so logins take the next, as from a fast clock."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + ahead)))


@pytest.fixture
def secret(operator: User) -> str:
    """Of a second factor that the operator has set up through the pages."""
    client = Client()
    log_in(client)
    asked = client.get(reverse("mfa_activate_totp"))
    assert asked.headers["Location"].startswith(reverse("account_reauthenticate")), "a password first"
    answer = client.post(asked.headers["Location"], {"password": PASSWORD})
    page = client.get(answer.headers["Location"])
    found = re.search(r"<code>([A-Z2-7]{32})</code>", page.text)
    assert found is not None
    done = client.post(reverse("mfa_activate_totp"), {"code": code_now(found[1], 0)})
    assert done.headers["Location"] == reverse("mfa_view_recovery_codes")
    assert "data:image/svg+xml;base64," in page.text
    return found[1]


def test_without_a_second_factor_the_password_logs_in(operator: User) -> None:
    client = Client()
    assert log_in(client) == reverse("overview")
    assert logged_in(client)


def test_with_a_second_factor_the_password_alone_does_not(secret: str) -> None:
    client = Client()
    assert log_in(client) == reverse("mfa_authenticate")
    assert not logged_in(client)
    wrong = client.post(reverse("mfa_authenticate"), {"code": "000000"})
    assert (wrong.status_code, "The code is wrong" in wrong.text) == (200, True)
    assert not logged_in(client)
    client.post(reverse("mfa_authenticate"), {"code": code_now(secret)})
    assert logged_in(client)


def test_the_secret_lies_encrypted(secret: str) -> None:
    kept = Authenticator.objects.get(type=Authenticator.Type.TOTP).data["secret"]
    assert secret not in kept
    assert decrypt(kept) == secret


def test_a_recovery_code_logs_in_once(secret: str, operator: User) -> None:
    codes = Authenticator.objects.get(type=Authenticator.Type.RECOVERY_CODES).wrap().get_unused_codes()
    for client, lets_in in ((Client(), True), (Client(), False)):
        log_in(client)
        client.post(reverse("mfa_authenticate"), {"code": codes[0]})
        assert logged_in(client) is lets_in


def test_where_it_was_asked_for_is_kept_through_the_code(secret: str) -> None:
    client = Client()
    client.post(reverse("login"), {"username": "mira", "password": PASSWORD, "next": "/alerts/"})
    assert client.post(reverse("mfa_authenticate"), {"code": code_now(secret)}).headers["Location"] == "/alerts/"


def test_nobody_is_sent_to_another_site(operator: User) -> None:
    answer = Client().post(reverse("login"), {"username": "mira", "password": PASSWORD, "next": "https://evil.example/"})
    assert answer.headers["Location"] == reverse("overview")


def test_an_admin_resets_a_second_factor(secret: str, operator: User, admin_client: Client) -> None:
    admin_client.post(reverse("person-reset", args=[operator.pk]))
    assert log_in(Client()) == reverse("overview")


def test_wrong_codes_are_counted(secret: str) -> None:
    client = Client()
    log_in(client)
    for _ in range(6):
        answer = client.post(reverse("mfa_authenticate"), {"code": "000000"})
    assert "Too many failed login attempts" in answer.text
    client.post(reverse("mfa_authenticate"), {"code": code_now(secret)})
    assert not logged_in(client)


def add_nora(admin_client: Client) -> tuple[User, str]:
    everything = ServerGroup.of_all()
    answer = admin_client.post(reverse("person-add"), {"username": "nora", f"group-{everything.pk}": "operator"})
    found = re.search(r"http://testserver(/welcome/[^<]+)", answer.text)
    assert found is not None
    return User.objects.get(username="nora"), found[1]


def test_somebody_new_sets_a_password_once(admin_client: Client) -> None:
    nora, link = add_nora(admin_client)
    assert not nora.has_usable_password()
    assert Membership.objects.get(user=nora).role == "operator"
    client = Client()
    form = client.get(link, follow=True)
    assert link.split("/")[-2] not in form.request["PATH_INFO"], "the token has left the address"
    short = client.post(form.request["PATH_INFO"], {"new_password1": "short", "new_password2": "short"})
    assert "at least 10 characters" in short.text
    client.post(form.request["PATH_INFO"], {"new_password1": "violet onions", "new_password2": "violet onions"})
    assert log_in(Client(), "nora", "violet onions") == reverse("overview")
    assert "used up" in Client().get(link, follow=True).text


def test_what_an_admin_does_is_in_the_audit(admin_client: Client) -> None:
    nora, _ = add_nora(admin_client)
    admin_client.post(reverse("person-active", args=[nora.pk]), {"active": "0"})
    told = set(AuditEntry.objects.values_list("action", "actor_name"))
    assert {(f"person.{what}", "ada") for what in ("added", "roles", "link", "deactivated")} <= told


def test_many_people_are_found_and_paged(admin_client: Client) -> None:
    User.objects.bulk_create(User(username=f"person-{number:03}", email=f"p{number}@example.org") for number in range(60))
    first = admin_client.get(reverse("people"))
    assert "people 1 to 50 of 61" in first.text
    assert "person-055" not in first.text
    assert "person-055" in admin_client.get(reverse("people"), {"page": "2"}).text
    found = admin_client.get(reverse("people"), {"q": "P55@"}).text
    assert "person-055" in found
    assert "person-054" not in found
    assert "Nobody has this in the name or the e-mail." in admin_client.get(reverse("people"), {"q": "x" * 300}).text


def test_who_was_invited_is_told_from_who_is_active(admin_client: Client, operator: User) -> None:
    invited = services.add("nora", "", {})
    assert "invited, no password yet" in admin_client.get(reverse("person", args=[invited.pk])).text
    assert "invited" not in admin_client.get(reverse("person", args=[operator.pk])).text


def test_what_is_said_of_a_field_is_tied_to_it(admin_client: Client) -> None:
    """Each id that a field points at for its hint and its error is there."""
    text = admin_client.post(reverse("person-add"), {"username": ""}).text
    pointed = {name for ids in re.findall(r'aria-describedby="([^"]+)"', text) for name in ids.split()}
    assert pointed
    assert {name for name in pointed if f'id="{name}"' not in text} == set()


def test_nobody_signs_up(client: Client) -> None:
    assert client.post("/accounts/signup/", {"username": "eve"}).status_code == 404
    assert client.post("/signup/", {"username": "eve"}).status_code == 404


def test_a_deactivated_person_is_out_at_once(operator: User, operator_client: Client, admin_client: Client) -> None:
    assert logged_in(operator_client)
    admin_client.post(reverse("person-active", args=[operator.pk]), {"active": "0"})
    assert not logged_in(operator_client)
    assert "is wrong" in Client().post(reverse("login"), {"username": "mira", "password": PASSWORD}).text
    admin_client.post(reverse("person-active", args=[operator.pk]), {"active": "1"})
    assert log_in(Client()) == reverse("overview")


@pytest.mark.parametrize("how", ["deactivated", "demoted"])
def test_the_last_admin_stays(admin: User, admin_client: Client, how: str) -> None:
    if how == "deactivated":
        answer = admin_client.post(reverse("person-active", args=[admin.pk]), {"active": "0"}, follow=True)
    else:
        answer = admin_client.post(reverse("person", args=[admin.pk]), {f"group-{ServerGroup.of_all().pk}": "viewer"})
    assert "last admin" in answer.text
    admin.refresh_from_db()
    assert admin.is_active
    assert Membership.objects.get(user=admin).role == "admin"


def test_sessions_are_listed_and_ended_one_or_all_others(operator: User) -> None:
    clients = [client_of(operator, headers={"user-agent": agent}) for agent in AGENTS]
    assert all(logged_in(client) for client in clients)
    page = clients[0].get(reverse("settings-sessions")).text
    assert "Firefox on Linux" in page
    assert "Chrome on Android" in page
    assert page.count("this session") == 1
    phone = UserSession.objects.get(user_agent__startswith="Chrome")
    clients[0].post(reverse("session-end", args=[phone.pk]))
    assert [logged_in(client) for client in clients] == [True, False, True]
    clients[0].post(reverse("session-end-others"))
    assert [logged_in(client) for client in clients] == [True, False, False]


def test_nobody_ends_the_session_of_another(operator_client: Client, viewer_client: Client) -> None:
    assert logged_in(viewer_client)
    theirs = UserSession.objects.get(user__username="vera")
    assert operator_client.post(reverse("session-end", args=[theirs.pk])).status_code == 404
    assert logged_in(viewer_client)


def test_another_password_ends_sessions_elsewhere(operator: User) -> None:
    here, elsewhere = client_of(operator), client_of(operator)
    assert logged_in(elsewhere)
    new = {"oldpassword": PASSWORD, "password1": "violet onions", "password2": "violet onions"}
    assert here.post(reverse("account_change_password"), new).status_code == 302
    assert (logged_in(here), logged_in(elsewhere)) == (True, False)


@pytest.mark.parametrize("bad", ["short", "1234567890", "password123"])
def test_passwords_have_rules(operator_client: Client, bad: str) -> None:
    answer = operator_client.post(
        reverse("account_change_password"), {"oldpassword": PASSWORD, "password1": bad, "password2": bad}
    )
    assert (answer.status_code, "is-bad" in answer.text) == (200, True)


def test_a_role_in_a_group_is_for_its_servers_alone(viewer: User, viewer_client: Client, admin_client: Client) -> None:
    inside, outside = (
        Server.objects.create(name=name, kind="vllm", base_url="http://127.0.0.1:1", enabled=False)
        for name in ("inside", "outside")
    )
    admin_client.post(reverse("group-add"), {"name": "lab", "servers": [inside.pk]})
    lab = ServerGroup.objects.get(name="lab")
    admin_client.post(
        reverse("person", args=[viewer.pk]), {f"group-{lab.pk}": "operator", f"group-{ServerGroup.of_all().pk}": ""}
    )
    page = viewer_client.get(reverse("overview")).text
    assert ("inside" in page, "outside" in page) == (True, False)
    assert [each["name"] for each in viewer_client.get("/api/servers").json()["items"]] == ["inside"]
    assert viewer_client.get(reverse("server-share", args=[inside.pk])).status_code == 200
    assert viewer_client.get(reverse("server", args=[outside.pk])).status_code == 404


def test_without_a_role_nothing_shows_and_the_settings_say_why(viewer: User, viewer_client: Client) -> None:
    Server.objects.create(name="atlas", kind="vllm", base_url="http://127.0.0.1:1", enabled=False)
    Membership.objects.filter(user=viewer).delete()
    assert "atlas" not in viewer_client.get(reverse("overview")).text
    assert "no role yet" in viewer_client.get(reverse("settings")).text


@pytest.mark.parametrize("name", ["settings", "settings-tokens", "people", "person-add", "account_change_password", "login"])
def test_the_pages_need_no_inline_script_or_style(admin_client: Client, client: Client, name: str) -> None:
    answer = (client if name == "login" else admin_client).get(reverse(name))
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert " style=" not in answer.text
    assert not re.search(r"<script(?![^>]*(src=|type=.application/json))", answer.text)


def test_lists_of_alerts_and_rules_keep_to_what_one_may_see(viewer: User, viewer_client: Client, admin_client: Client) -> None:
    inside, outside = (
        Server.objects.create(name=name, kind="vllm", base_url="http://127.0.0.1:1") for name in ("atlas", "cirrus")
    )
    lab = ServerGroup.objects.create(name="lab")
    lab.servers.add(inside)
    Membership.objects.filter(user=viewer).update(group=lab, role="operator")
    now = timezone.now()
    for server in (inside, outside, None):
        named = server.name if server else "all of them"
        Alert.objects.create(
            server=server,
            kind="stuck_slot",
            severity="warning",
            began_at=now,
            opened_at=now,
            last_seen_at=now,
            text=f"about {named}",
        )
        if server is not None:
            Rule.objects.create(kind="starving", server=server)
    Recipient.objects.create(name="ops", channel="email", address="ops@example.org")
    page = viewer_client.get(reverse("alerts")).text
    assert [f"about {name}" in page for name in ("atlas", "cirrus", "all of them")] == [True, False, True]
    assert page.count("/acknowledge/") == 1, "of its own server alone"
    rules = viewer_client.get(reverse("alert-rules")).text
    assert ("atlas" in rules, "cirrus" in rules, "ops@example.org" in rules) == (True, False, False)
    assert "ops@example.org" in admin_client.get(reverse("alert-rules")).text


def test_roles_of_before_become_roles_on_all_servers(db: None) -> None:
    people = {name: User.objects.create_user(name) for name in ("op", "boss", "looker")}
    for name, group in (("op", "operator"), ("boss", "admin"), ("boss", "viewer")):
        people[name].groups.add(Group.objects.get_or_create(name=group)[0])
    User.objects.create_superuser("first", password="x")
    ServerGroup.objects.all().delete()
    migration = import_module("dashboard.people.migrations.0002_roles_from_groups")
    migration.take_over(apps, None)
    told = dict(Membership.objects.filter(group__everything=True).values_list("user__username", "role"))
    assert told == {"op": "operator", "boss": "admin", "looker": "viewer"}
    migration.give_back(apps, None)
    assert list(people["op"].groups.values_list("name", flat=True)) == ["operator"]


def test_settings_and_links_stand_under_the_url_prefix(operator: User, admin_client: Client) -> None:
    set_script_prefix("/ops/llm/")
    try:
        page = admin_client.get("/settings/people/").text
        answer = admin_client.post(f"/settings/people/{operator.pk}/link/").text
    finally:
        set_script_prefix("/")
    assert 'href="/ops/llm/settings/people/add/"' in page
    assert "http://testserver/ops/llm/welcome/" in answer
