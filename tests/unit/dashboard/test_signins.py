"""Logins, failures, lock-outs, ends, passwords and second factors stand in the audit trail; a flood adds few rows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from dashboard.people import signins
from scheduler_api.audit import selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from tests.conftest import client_of

PASSWORD = "mira-password"
Rows = list[tuple[str, str, str, str]]


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


def rows(noun: str = "") -> Rows:
    found = AuditEntry.objects.filter(action__startswith=noun).order_by("seq")
    return list(found.values_list("action", "subject", "actor_name", "outcome"))


def log_in(client: Client, name: str = "mira", password: str = PASSWORD, **more: str) -> None:
    client.post(reverse("login"), {"username": name, "password": password}, **more)  # type: ignore[arg-type]


def test_a_login_and_its_end_say_who_from_where_and_with_what(operator: User) -> None:
    client = Client(headers={"user-agent": "Firefox/140 Linux"}, REMOTE_ADDR="10.1.2.3")
    log_in(client)
    client.post(reverse("logout"))
    assert rows() == [("login.succeeded", "mira", "mira", "done"), ("login.ended", "mira", "mira", "done")]
    came, went = AuditEntry.objects.order_by("seq")
    assert (came.address, came.through, came.actor_id) == ("10.1.2.3", "login", operator.pk)
    assert "Firefox on Linux" in came.after
    assert (went.address, went.through) == ("10.1.2.3", "session")
    assert isinstance(selectors.verify(), Head)


def test_what_was_typed_as_a_name_that_nobody_has_is_written_nowhere(operator: User) -> None:
    log_in(Client(), name="correct horse battery staple", password="x")
    (row,) = AuditEntry.objects.all()
    assert (row.action, row.subject, row.actor_name, row.outcome) == ("login.failed", signins.NOBODY, "", "refused")
    assert "staple" not in str(selectors.as_json(row))


def test_a_wrong_password_is_written_once_a_minute_and_a_lock_out_once(operator: User) -> None:
    client = Client()
    for _ in range(12):
        log_in(client, password="wrong")
    assert rows() == [("login.failed", "mira", "", "refused"), ("login.locked", "mira", "", "refused")]
    assert "8 failed logins; locked at this address for 15 minutes" in AuditEntry.objects.get(action="login.locked").why


def test_a_flood_from_everywhere_adds_a_few_rows_a_minute(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signins, "MOST_A_MINUTE", 3)
    for n in range(8):
        log_in(Client(), name=f"guess {n}", password="x", REMOTE_ADDR=f"10.0.0.{n}")
    found = rows("login.failed")
    assert len(found) == 3 + 1
    assert found[-1][1] == signins.OVERFLOW


def end_one(client: Client) -> None:
    page = client.get(reverse("settings-sessions")).text
    ends = re.findall(r"/settings/sessions/(\d+)/end/", page)
    client.post(reverse("session-end", args=[ends[-1]]))


def end_others(client: Client) -> None:
    client.post(reverse("session-end-others"))


@pytest.mark.parametrize(("end", "subject"), [(end_one, "Chrome on Android, of mira"), (end_others, "1 session of mira")])
def test_sessions_that_are_ended_by_their_person(operator: User, end: Callable[[Client], None], subject: str) -> None:
    phone = client_of(operator, headers={"user-agent": "Chrome/150 Android"})
    phone.get(reverse("settings"))
    here = client_of(operator, headers={"user-agent": "Firefox/140 Linux"})
    end(here)
    assert rows() == [("session.ended", subject, "mira", "done")]


def test_sessions_that_an_admin_ends(operator: User, operator_client: Client, admin_client: Client) -> None:
    operator_client.get(reverse("settings"))
    admin_client.post(reverse("person-sign-out", args=[operator.pk]))
    assert rows() == [("session.ended", "1 session of mira", "ada", "done")]


def test_another_password(operator: User, operator_client: Client) -> None:
    wrong = {"oldpassword": "no", "password1": "violet onions", "password2": "violet onions"}
    operator_client.post(reverse("account_change_password"), wrong)
    assert rows("password") == []
    operator_client.post(reverse("account_change_password"), wrong | {"oldpassword": PASSWORD})
    assert rows("password") == [("password.changed", "mira", "mira", "done")]
    assert not AuditEntry.objects.filter(after__contains="onions").exists()


def test_a_first_password_by_the_link_of_an_admin(operator: User, admin_client: Client) -> None:
    page = admin_client.post(reverse("person-link", args=[operator.pk])).text
    found = re.search(r"http://testserver(/welcome/[^<]+)", page)
    assert found is not None
    client = Client()
    form = client.get(found[1], follow=True).request["PATH_INFO"]
    client.post(form, {"new_password1": "violet onions", "new_password2": "violet onions"})
    assert rows("password") == [("password.set", "mira", "mira", "done")]


@pytest.mark.django_db(transaction=True)
def test_a_second_factor_from_its_beginning_to_its_end(operator: User) -> None:
    client = Client()
    log_in(client)
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})
    found = re.search(r"<code>([A-Z2-7]{32})</code>", client.get(reverse("mfa_activate_totp")).text)
    assert found is not None
    code = str(format_hotp_value(hotp_value(found[1], int(time.time()) // 30)))
    client.post(reverse("mfa_activate_totp"), {"code": code})
    client.post(reverse("mfa_generate_recovery_codes"))
    other = Client()
    log_in(other)
    for _ in range(3):
        other.post(reverse("mfa_authenticate"), {"code": "000000"})
    client.post(reverse("mfa_deactivate_totp"))
    assert [row[:3] for row in rows("second_factor")] == [
        ("second_factor.added", "authenticator app of mira", "mira"),
        ("second_factor.added", "recovery codes of mira", "mira"),
        ("second_factor.renewed", "recovery codes of mira", "mira"),
        ("second_factor.removed", "authenticator app of mira", "mira"),
        ("second_factor.removed", "recovery codes of mira", "mira"),
    ]
    (failed,) = AuditEntry.objects.filter(action="login.failed")
    assert (failed.subject, failed.why) == ("mira", "the code is wrong")
    assert not AuditEntry.objects.filter(after__contains=found[1]).exists()
