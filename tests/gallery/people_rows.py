"""Made-up people, sessions, tokens, links and audit rows, by the amount that is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any
from unittest import mock

from playwright.sync_api import StorageState

PASSWORD = "a made-up password"
TOTP_SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Safari/604.1",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
    "monitoring-probe/3.1 (+https://probe.example.org; a very long user agent that nobody shortened)",
)
LONG = "die-mit-dem-sehr-langen-namen.vorname.nachname@rechenzentrum.example.org"
FIRST = "anna ben carla dmitri elif farid grace hugo ines jun kofi lena mei nils olga paul quinn rosa sven tess".split()  # noqa: SIM905
MACHINES = ["atlas", "boreas", "ceto", "doris", "eos", "faun", "gaia", "hera", "iris", "juno"]
POLICY = ({"prefill_order": "physical", "phase": "continuous"}, {"prefill_order": "rotating", "phase": "barrier"})


def fill(amount: str) -> dict[str, StorageState]:
    """Cookies of the people that pages are looked at as."""
    servers = _servers({"none": 0, "little": 2, "much": 50}[amount])
    _people(amount, servers)
    if amount != "none":
        _sessions(28 if amount == "much" else 1)
        _tokens(40 if amount == "much" else 2)
        _links(40 if amount == "much" else 2, servers)
        _trail(5000 if amount == "much" else 12, servers)
    _locked("locked-out")
    return {name: _cookies(name) for name in ("vera", "otto", "newt", "tess")}


def _servers(count: int) -> list[Any]:
    from scheduler_api.models import Server

    names = [f"{name}{number or ''}" for number in range(5) for name in MACHINES][:count]
    if count > 3:
        names[3] = "rack-12-gpu-node-0007-llama-70b-instruct-long-context-128k"
    return [
        Server.objects.create(name=name, kind="engine", base_url=f"http://192.0.2.{n}:8080") for n, name in enumerate(names, 1)
    ]


def _people(amount: str, servers: list[Any]) -> None:
    from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
    from allauth.mfa.totp.internal.auth import TOTP
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import User
    from django.utils import timezone

    from dashboard.people.models import Membership, ServerGroup

    everywhere, password, now = ServerGroup.of_all(), make_password(PASSWORD), timezone.now()
    for name, role in (("vera", "viewer"), ("otto", "operator"), ("newt", ""), ("tess", "operator"), ("locked-out", "viewer")):
        user = User.objects.create(username=name, password=password, email=f"{name}@example.org", last_login=now)
        if role:
            Membership.objects.create(user=user, group=everywhere, role=role)
    TOTP.activate(tess := User.objects.get(username="tess"), TOTP_SECRET)
    codes = RecoveryCodes.activate(tess)
    for code in codes.get_unused_codes()[:3]:
        codes.validate_code(code)
    User.objects.create(username="invited", email="invited@example.org", password=make_password(None))
    if amount != "much":
        return
    groups = [
        ServerGroup.objects.create(name=name) for name in ("Night shift", "Lab", "Customers of the third floor, long context")
    ]
    for at, group in enumerate(groups):
        group.servers.set(servers[at * 10 : at * 20 + 8])
    for number in range(194):
        name = LONG if number == 7 else f"{FIRST[number % len(FIRST)]}{number // len(FIRST) or ''}-team"
        seen = now - timedelta(hours=number * 5) if number % 6 else None
        user = User.objects.create(username=name, password=password, is_active=number % 9 != 4, last_login=seen)
        for at, group in enumerate([everywhere, *groups][number % 4 :]):
            if number % 5:
                Membership.objects.create(user=user, group=group, role=("viewer", "operator", "admin")[(number + at) % 3])


def _sessions(count: int) -> None:
    from allauth.usersessions.models import UserSession
    from django.contrib.auth.models import User
    from django.utils import timezone

    admin = User.objects.get(username="admin")
    for number, agent in enumerate(islice(cycle(AGENTS), count)):
        row = UserSession.objects.create(
            user=admin,
            ip="2001:db8:85a3:8d3:1319:8a2e:370:7348" if number % 4 == 3 else f"198.51.100.{number + 2}",
            user_agent=agent,
            session_key=_session(admin),
            last_seen_at=timezone.now() - timedelta(minutes=7 * number * number + 1),
        )
        UserSession.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(hours=9 * number + 3))


def _tokens(count: int) -> None:
    from django.contrib.auth.models import User
    from django.utils import timezone

    from dashboard.people.models import ApiToken, Scope, ServerGroup

    people, groups, now = list(User.objects.all()[:9]), [None, *ServerGroup.objects.filter(everything=False)], timezone.now()
    for number in range(count):
        name = (
            "the nightly report of all servers to the third floor, kept by nobody in particular"
            if number == 5
            else f"ci-{number}"
        )
        ApiToken.objects.create(
            user=people[number % len(people)],
            name=name,
            start=f"a{number:02}Xq7",
            digest=f"{number:064}",
            scope=list(Scope)[number % 3],
            group=groups[number % len(groups)],
            created_at=now - timedelta(days=number),
            expires_at=None if number % 5 == 1 else now + timedelta(days=90 - 9 * number),
            revoked_at=now - timedelta(hours=number) if number % 7 == 6 else None,
            last_used_at=now - timedelta(minutes=number * 11) if number % 3 else None,
            last_used_from="2001:db8:85a3:8d3:1319:8a2e:370:7348" if number % 4 == 1 else "198.51.100.7" if number % 3 else None,
        )


def _links(count: int, servers: list[Any]) -> None:
    from django.contrib.auth.models import User
    from django.utils import timezone

    from dashboard.people.models import ShareLink

    maker, now = User.objects.get(username="otto"), timezone.now()
    for number in range(count):
        ShareLink.objects.create(
            server=servers[number % len(servers)],
            digest=f"{number:064}",
            note=("the customer", "", "whoever looks after the wall display in the hall of the third floor")[number % 3],
            made_by=maker,
            created_at=now - timedelta(hours=7 * number),
            expires_at=now + timedelta(hours=100 - 9 * number),
            revoked_at=now - timedelta(hours=1) if number % 6 == 5 else None,
            opened_at=now - timedelta(minutes=number * 13) if number % 2 else None,
        )


def _trail(count: int, servers: list[Any]) -> None:
    from django.db import transaction
    from django.utils import timezone

    end = timezone.now()
    with transaction.atomic():
        for number in range(count):
            with _at(end - timedelta(minutes=(count - number) * 37)):
                _row(number, servers[number % len(servers)])


@contextmanager
def _at(moment: datetime) -> Iterator[None]:
    with mock.patch("scheduler_api.audit.service.timezone.now", return_value=moment):
        yield


def _row(number: int, server: Any) -> None:
    from scheduler_api import audit

    who: dict[str, Any] = {"actor_name": FIRST[number % len(FIRST)]}
    match number % 7:
        case 0:
            before, after = POLICY
            why = "the evening's load: short prompts waited behind the long ones of the nightly summaries" if number % 2 else ""
            audit.record(
                "policy.switched",
                "prefill_order rotating, phase barrier",
                server=server,
                before=before,
                after=after,
                why=why,
                **who,
            )
        case 1:
            audit.record("login.failed", "otto", why="name or password is wrong", outcome="refused", through="login")
        case 2:
            audit.record("person.roles", LONG, before={"Lab": "viewer"}, after={"Lab": "operator", "Night shift": "admin"}, **who)
        case 3:
            why = "the server did not answer within 5 s"
            audit.record(
                "policy.switched", "decode_share 0.25", server=server, why=why, outcome="failed", through="token ci-3", **who
            )
        case 4:
            audit.record(
                "run.started", f"run {number}", server=server, ref=f"run {number}", after={"arms": ["as-is", "rotating"]}, **who
            )
        case 5:
            audit.record("policy.seen", "somebody else changed prefill_chunk", server=server, outcome="seen", through="observer")
        case _:
            audit.record("login.succeeded", who["actor_name"], after={"program": "Firefox on Linux"}, through="login", **who)


def _locked(name: str) -> None:
    from axes.models import AccessAttempt
    from django.conf import settings

    AccessAttempt.objects.create(username=name, ip_address="127.0.0.1", failures_since_start=settings.AXES_FAILURE_LIMIT)


def _session(user: Any) -> str:
    """The key of a session as a login makes it, confirmed just now, without the second that a password's hash takes."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    kept = SessionStore()
    kept[SESSION_KEY], kept[BACKEND_SESSION_KEY] = str(user.pk), settings.AUTHENTICATION_BACKENDS[-1]
    kept[HASH_SESSION_KEY] = user.get_session_auth_hash()
    kept["account_authentication_methods_user"] = str(user.pk)
    kept["account_authentication_methods"] = [{"method": "password", "at": time.time(), "reauthenticated": True}]
    kept.create()
    return kept.session_key or ""


def _cookies(name: str) -> StorageState:
    from django.conf import settings
    from django.contrib.auth.models import User

    key = _session(User.objects.get(username=name))
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": key, "domain": "127.0.0.1", "path": "/"}
    return {"cookies": [{**cookie, "expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}], "origins": []}  # type: ignore[typeddict-item]
