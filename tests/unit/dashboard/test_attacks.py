"""Known attacks: markup in what a server says, formulas in exports, redirects, prefixes, long bodies, the log."""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.body_limit import IMPORT_LIMIT, LIMIT, BodyLimit, limit_of
from dashboard.feed.origin import may_open
from dashboard.people import tokens
from dashboard.people.models import Scope
from scheduler_api import audit, checks
from scheduler_api.alerts.kinds import Kind
from scheduler_api.history import table
from scheduler_api.models import PolicyChange, Server
from tests.conftest import client_of
from tests.support.alerts import alert, rule
from tests.support.sample_states import Json

Show = Callable[[str], Server]

ROOT = Path(__file__).resolve().parents[3]
ATTACK = (
    """ab'"><img src=x onerror=alert(1)></script></title></textarea><script>alert(1)</script>"""
    """<a href="javascript:alert(1)">{{ 7 }}"""
)
#: Words that code compares, so a server's other words in their place are another test.
ENUMERATIONS = frozenset({"state", "name", "kind", "phase", "source", "reason", "backend", "severity", "mode", "type", "order"})


def poisoned(value: Any, key: str = "") -> Any:
    """The state with the attack behind every text that is no enumeration, and as names of clients."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    return value + ATTACK if isinstance(value, str) and key not in ENUMERATIONS else value


class Markup(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text within scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script" and dict(attrs).get("type") != "application/json"
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:") or (name, value) == ("src", "x"):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.found.append(f"<script>{data}")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


PAGES = ("server", "policies", "server-history")


@pytest.mark.parametrize("name", ["barrier", "unified", "stock", "down", "vllm"])
def test_nothing_that_a_server_says_becomes_markup(admin_client: Client, shown: Show, states: dict[int, Json], name: str) -> None:
    server = shown(name)
    states[server.pk] = poisoned(states[server.pk])
    seen = 0
    pages = [reverse(page, args=[server.pk]) for page in PAGES] + [
        reverse(page) for page in ("overview", "overview-cards", "rail")
    ]
    for page in pages:
        answer = admin_client.get(page)
        assert answer.status_code == 200, page
        assert Markup(answer.text).found == [], page
        seen += "onerror" in answer.text
    assert seen >= 3  # the words did reach the pages


def test_nothing_that_was_written_down_becomes_markup(admin_client: Client, admin: User, shown: Show) -> None:
    server = shown("busy")
    Server.objects.filter(pk=server.pk).update(name=ATTACK[:80])
    PolicyChange.objects.create(
        server=server,
        actor_name=ATTACK,
        reason=ATTACK,
        error=ATTACK,
        outcome="failed",
        changes={"phase": ATTACK},
        old={"phase": ATTACK},
    )
    opened = alert(rule(Kind.STARVING), server, client=ATTACK, text=ATTACK)
    pages = ("overview", "audit", "alerts", "alert-rows", "alert-rules", "experiments", "experiment-new")
    for page in [reverse(name) for name in pages] + [reverse("policies", args=[server.pk]), reverse("alert", args=[opened.pk])]:
        answer = admin_client.get(page)
        assert answer.status_code == 200, page
        assert Markup(answer.text).found == [], page


def test_the_markup_reader_does_find_it() -> None:
    assert len(Markup(f"<p>{ATTACK}</p>").found) >= 3


def test_no_module_makes_markup_out_of_text() -> None:
    sinks = re.compile(r"innerHTML|insertAdjacentHTML|document\.write|outerHTML\s*=[^=]|\beval\(|new Function|srcdoc")
    modules = list((ROOT / "dashboard/static/dashboard/js").rglob("*.js"))
    assert len(modules) > 20
    assert [path.name for path in modules if sinks.search(path.read_text())] == []


def test_no_template_leaves_out_escaping() -> None:
    unescaped = re.compile(r"\|\s*safe\b|autoescape off|\|\s*safeseq")
    assert [path.name for path in (ROOT / "templates").rglob("*.html") if unescaped.search(path.read_text())] == []


FORMULAS = ("=1+1", "+1", "-cmd", "@SUM(A1)", "\t=1", "\r=1")


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_export_holds_a_formula(admin_client: Client, shown: Show, formula: str) -> None:
    server = shown("busy")
    PolicyChange.objects.create(server=server, actor_name="a", reason=formula, outcome="failed")
    audit.record("server.moved", formula, server=server, why=formula)
    exported = b"".join(admin_client.get(reverse("audit-csv")).streaming_content).decode()  # type: ignore[attr-defined]
    cells = [cell for row in csv.reader(io.StringIO(exported)) for cell in row]
    assert [cell for cell in cells if cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    assert table.cell(formula) == f"'{formula}"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "http:evil.example",
        " //evil.example",
    ],
)
def test_logging_in_leads_to_no_other_site(client: Client, viewer: User, elsewhere: str) -> None:
    answer = client.post(reverse("login"), {"username": "vera", "password": "vera-password", "next": elsewhere})
    assert (answer.status_code, answer.headers["Location"]) == (302, reverse("overview"))
    again = client.get(reverse("login"), {"next": elsewhere})
    assert again.headers["Location"] == reverse("overview")


def test_keys_of_people_reach_no_log(operator: User, shown: Show, caplog: pytest.LogCaptureFixture) -> None:
    server = shown("busy")
    _, secret = tokens.make(operator, "nightly", Scope.READ)
    caplog.set_level(logging.DEBUG)
    script = Client(headers={"authorization": f"Bearer {secret}"}, raise_request_exception=False)
    for path in (f"/api/servers/{server.pk}", "/api/nowhere", f"/api/servers?token={secret[:-2]}x"):
        script.get(path)
    Client().post(reverse("login"), {"username": "mira", "password": "a-wrong-passphrase"})
    Server.objects.create(name="wrong", kind="engine", base_url="http://127.0.0.1:1", api_key="sk-in-a-log", enabled=False)
    assert secret not in caplog.text
    assert "a-wrong-passphrase" not in caplog.text
    assert "sk-in-a-log" not in re.sub(r"\(0\.\d+\).*", "", caplog.text) + repr(Server.objects.get(name="wrong").api_key)


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/",
        "/%2e%2e/settings/",
        "/servers/1/../../audit/",
        "/static/../manage.py",
        "/static/%2e%2e/settings.py",
        "/ops/llm/audit/",
    ],
)
def test_odd_paths_lead_nowhere(client: Client, db: None, path: str) -> None:
    """To the log-in at most, on this host, and to no file beside the static ones."""
    answer = client.get(path)
    assert answer.status_code in (302, 301, 404)
    location = answer.headers.get("Location", "/")
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


@pytest.mark.parametrize("prefix", ["//evil.example", "/ops/../..", "https://evil.example/"])
def test_a_proxy_cannot_choose_the_prefix(client: Client, db: None, prefix: str) -> None:
    answer = client.get("/", headers={"x-forwarded-prefix": prefix, "x-script-name": prefix, "x-forwarded-host": "evil.example"})
    assert answer.headers["Location"] == "/login/?next=/"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:8000@evil.example", "localhost.evil.example"])
def test_another_host_name_is_not_answered(client: Client, host: str) -> None:
    assert client.get(reverse("login"), headers={"host": host}).status_code == 400


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("https://localhost", "localhost", True),
        ("http://127.0.0.1:9000", "127.0.0.1:8000", False),  # another program's page on this machine
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("http://evil.example", "127.0.0.1:8000", False),
        ("http://evil.example", "evil.example", False),  # a name that was made to lead here
        ("http://127.0.0.1:8000.evil.example", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("", "127.0.0.1:8000", False),
        ("file://127.0.0.1:8000", "127.0.0.1:8000", False),
        ("https://ops.example.org", "127.0.0.1:8000", True),
        ("http://ops.example.org", "127.0.0.1:8000", False),
    ],
)
def test_live_feeds_open_for_our_own_pages_alone(settings: Any, origin: str, host: str, allowed: bool) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://ops.example.org"]
    assert may_open(origin, host) is allowed


def exchange(path: str, headers: list[tuple[bytes, bytes]], pieces: list[bytes]) -> tuple[int, int]:
    """The status that a client gets, and how many bytes the application read."""
    sent: list[Any] = []
    read = 0
    queue = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces] + [
        {"type": "http.request", "body": b""}
    ]

    async def receive() -> Any:
        return queue.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal read
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            read += len(message["body"])
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})

    asyncio.run(BodyLimit(application)({"type": "http", "path": path, "headers": headers}, receive, send))
    return sent[0]["status"], read


def test_long_bodies_end_early() -> None:
    piece = b"x" * (1 << 20)
    assert exchange("/scenarios/add/", [(b"content-length", str(LIMIT + 1).encode())], [piece]) == (413, 0)
    assert exchange("/scenarios/add/", [], [piece] * 64) == (413, LIMIT)
    assert exchange("/scenarios/add/", [], [piece] * 3) == (200, 3 << 20)
    assert limit_of("/experiments/import/") == limit_of("/ops/llm/experiments/import/") == IMPORT_LIMIT


def test_a_long_form_is_refused(operator_client: Client) -> None:
    answer = operator_client.post(reverse("scenario-check"), {"text": "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)})
    assert answer.status_code == 400


def test_frames_of_live_feeds_are_short() -> None:
    """A browser sends a word or two; uvicorn closes what sends more than this with 1009."""
    web = next(line for line in (ROOT / "Procfile").read_text().splitlines() if line.startswith("web:"))
    found = re.search(r"--ws-max-size (\d+)", web)
    assert found is not None
    assert int(found[1]) <= 65536


HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.mark.parametrize("page", ["login", "health", "overview", "experiments"])
def test_every_answer_has_the_headers(viewer: User, page: str) -> None:
    answer = client_of(viewer).get(reverse(page)) if page != "login" else Client().get(reverse(page))
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "camera=()" in answer.headers["Permissions-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_with_the_settings_of_production_the_deploy_check_is_clean(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLOTBOARD_", "DJANGO_"))}
    env = {
        **kept,
        "SLOTBOARD_VAR_DIR": str(tmp_path),
        "SLOTBOARD_HTTPS": "1",
        "SLOTBOARD_BEHIND_PROXY": "1",
        "SLOTBOARD_ALLOWED_HOSTS": "ops.example.org",
        "SLOTBOARD_TARGET_ALLOW": "10.0.0.0/8,*.gpu.example.org",
    }

    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "no issues" in done.stdout + done.stderr) == (0, True), done.stderr


def test_settings_that_make_no_sense_are_told_by_the_check(settings: Any) -> None:
    settings.TARGET_ALLOW, settings.CREDENTIAL_KEYS = ["http://10.0.0.1"], ["short"]
    told = [found.msg for found in checks.allow_lists(None) + checks.credential_keys(None)]
    assert "'http://10.0.0.1' is neither a host name" in told[0]
    assert "fewer than 32 characters" in told[1]
    settings.CREDENTIAL_KEYS = [settings.SECRET_KEY]
    assert "must not open credentials" in checks.credential_keys(None)[0].msg
