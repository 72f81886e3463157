"""Keys for scripts, and links for people without an account: shown once, kept as a digest, never more than they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.people import links, tokens
from dashboard.people.models import ApiToken, Membership, Scope, ServerGroup, ShareLink
from scheduler_api import policies
from scheduler_api.api_auth import MOST_FAILURES
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import PolicyChange, Server
from tests.conftest import client_of
from tests.support.sample_rows import make_run
from tests.support.sample_states import Json
from tests.unit.dashboard.conftest import KEY

Show = Callable[[str], Server]


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


@pytest.fixture
def server(db: None, states: dict[int, Json]) -> Server:
    """One that nobody watches."""
    return Server.objects.create(name="busy", kind="engine", base_url="http://127.0.0.1:1", api_key=KEY, enabled=False)


def bearer(secret: str, *, enforce_csrf_checks: bool = False) -> Client:
    return Client(enforce_csrf_checks, headers={"authorization": f"Bearer {secret}"})


def test_a_token_is_shown_once_and_kept_as_a_digest(operator_client: Client, server: Server) -> None:
    made = operator_client.post(reverse("settings-tokens"), {"name": "nightly", "scope": "read", "days": "30"})
    found = re.search(r"<code>(slotboard_[\w-]+)</code>", made.text)
    assert found is not None
    secret = found[1]
    row = ApiToken.objects.get()
    assert secret not in str(vars(row))
    assert secret not in operator_client.get(reverse("settings-tokens")).text
    assert not AuditEntry.objects.filter(after__contains=secret).exists()
    assert [each["name"] for each in bearer(secret).get("/api/servers").json()["items"]] == ["busy"]
    row.refresh_from_db()
    assert row.last_used_at is not None


def patch(client: Client, server: Server) -> int:
    body = '{"set": {"phase": "barrier"}, "reason": "a test"}'
    return client.patch(f"/api/servers/{server.pk}/policy", body, content_type="application/json").status_code


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who switched, in place of a server that would be asked."""
    names: list[str] = []

    def switch(server: Server, changes: dict[str, object], **given: object) -> PolicyChange:
        names.append(str(given["actor_name"]))
        return PolicyChange.objects.create(server=server, actor_name=str(given["actor_name"]), outcome="applied")

    monkeypatch.setattr(policies, "switch", switch)
    return names


def test_a_token_writes_without_a_csrf_token_a_session_does_not(operator: User, server: Server, switched: list[str]) -> None:
    _, secret = tokens.make(operator, "switcher", Scope.OPERATE)
    assert patch(bearer(secret, enforce_csrf_checks=True), server) == 200
    assert patch(client_of(operator, enforce_csrf_checks=True), server) == 403
    assert switched == ["mira"]


@pytest.mark.parametrize(
    ("role", "scope", "status"),
    [("operator", "read", 403), ("viewer", "operate", 403), ("operator", "admin", 200), ("admin", "operate", 200)],
)
def test_a_token_may_no_more_than_its_scope_and_its_person(
    viewer: User, server: Server, switched: list[str], role: str, scope: str, status: int
) -> None:
    Membership.objects.filter(user=viewer).update(role=role)
    _, secret = tokens.make(viewer, "x", Scope(scope))
    assert patch(bearer(secret), server) == status
    assert bearer(secret).get(f"/api/servers/{server.pk}").status_code == 200


def test_a_token_of_a_group_sees_its_servers_alone(operator: User, server: Server) -> None:
    inside = server
    outside = Server.objects.create(name="other", kind="vllm", base_url="http://127.0.0.1:2", enabled=False)
    group = ServerGroup.objects.create(name="lab")
    group.servers.add(inside)
    _, secret = tokens.make(operator, "x", Scope.READ, group=group)
    assert [each["id"] for each in bearer(secret).get("/api/servers").json()["items"]] == [inside.pk]
    assert bearer(secret).get(f"/api/servers/{outside.pk}").status_code == 404
    assert bearer(secret).get(f"/api/servers/{outside.pk}/history").status_code == 404


def revoked(token: ApiToken) -> None:
    tokens.revoke(token)


def expired(token: ApiToken) -> None:
    ApiToken.objects.update(expires_at=timezone.now())


def its_person_left(token: ApiToken) -> None:
    User.objects.update(is_active=False)


@pytest.mark.parametrize("end", [revoked, expired, its_person_left])
def test_a_token_that_has_ended_opens_nothing(operator: User, server: Server, end: Callable[[ApiToken], None]) -> None:
    token, secret = tokens.make(operator, "x", Scope.READ, lasts=timedelta(days=1))
    assert bearer(secret).get("/api/servers").status_code == 200
    end(token)
    assert bearer(secret).get("/api/servers").status_code == 401


def test_a_token_opens_no_page(operator: User, server: Server) -> None:
    _, secret = tokens.make(operator, "x", Scope.ADMIN)
    assert bearer(secret).get(reverse("overview")).status_code == 302


def test_a_wrong_token_is_refused_beside_a_good_session_and_many_are_not_looked_at(operator: User, server: Server) -> None:
    client = client_of(operator, headers={"authorization": "Bearer slotboard_wrong"})
    assert {client.get("/api/servers").status_code for _ in range(MOST_FAILURES)} == {401}
    late = client.get("/api/servers")
    assert (late.status_code, late.headers["Retry-After"]) == (429, "60")
    _, secret = tokens.make(operator, "x", Scope.READ)
    assert bearer(secret).get("/api/servers").status_code == 429


def test_an_admin_revokes_the_token_of_another(operator: User, viewer_client: Client, admin_client: Client) -> None:
    token, _ = tokens.make(operator, "x", Scope.READ)
    assert viewer_client.post(reverse("token-revoke", args=[token.pk])).status_code == 404
    admin_client.post(reverse("token-revoke", args=[token.pk]))
    token.refresh_from_db()
    assert token.revoked_at is not None


# Share links


def share(client: Client, address: str) -> tuple[ShareLink, str]:
    page = client.post(address, {"hours": "1", "note": "for the vendor"})
    found = re.search(r"http://testserver/shared/(\d+)/#([\w-]+)", page.text)
    assert found is not None
    return ShareLink.objects.get(pk=found[1]), found[2]


def opened(link: ShareLink, secret: str) -> Client:
    client = Client()
    answer = client.post(reverse("shared-open", args=[link.pk]), {"secret": secret})
    assert answer.headers.get("Location") == reverse("shared", args=[link.pk])
    return client


def test_a_link_shows_one_live_page_and_no_way_out(operator_client: Client, shown: Show) -> None:
    server = shown("busy")
    link, secret = share(operator_client, reverse("server-share", args=[server.pk]))
    assert secret not in str(vars(link))
    client = opened(link, secret)
    page = client.get(reverse("shared", args=[link.pk]))
    assert page.status_code == 200
    assert f'data-feed="/ws/shared/{link.pk}/"' in page.text
    assert re.findall(r'<a\b[^>]*\shref="(?!#)', page.text) == []
    assert re.findall(r'<form (?!method="dialog")', page.text) == []
    assert "hx-get" not in page.text
    assert server.base_url not in page.text
    assert "http://127.0.0.1:9" not in page.text, "nor in the state that it carries"
    assert "atlas:4711" not in page.text, "nor who watches it"
    assert "atlas:4711" in operator_client.get(reverse("server", args=[server.pk])).text
    assert KEY not in page.text
    for path in (reverse("overview"), reverse("server", args=[server.pk]), "/api/servers"):
        assert client.get(path).status_code in (302, 401)


@pytest.mark.parametrize("part", ["detail", "fairness", "history", "runs"])
def test_a_link_gives_the_figures_of_its_server(operator: User, server: Server, part: str) -> None:
    client = opened(*links.make(operator, server=server, lasts=timedelta(hours=1)))
    assert client.get(reverse("shared-part", args=[ShareLink.objects.get().pk, part])).status_code == 200
    assert client.get(reverse("shared-part", args=[ShareLink.objects.get().pk, "policy"])).status_code == 404


def test_a_link_shows_one_result(operator_client: Client, operator: User, server: Server) -> None:
    run = make_run(server, operator, pairs=2)
    link, secret = share(operator_client, reverse("run-share", args=[run.pk]))
    client = opened(link, secret)
    page = client.get(reverse("shared", args=[link.pk])).text
    assert f"run {run.pk}" in page
    assert re.findall(r'<a\b[^>]*\shref="(?!#)', page) == []
    assert client.get(reverse("run", args=[run.pk])).status_code == 302
    assert client.get(reverse("shared-part", args=[link.pk, "detail"])).status_code == 404


def test_a_link_shows_what_a_viewer_sees_whoever_opens_it(admin_client: Client, operator: User, server: Server) -> None:
    link, secret = links.make(operator, server=server, lasts=timedelta(hours=1))
    admin_client.post(reverse("shared-open", args=[link.pk]), {"secret": secret})
    page = admin_client.get(reverse("shared", args=[link.pk])).text
    assert "Change policy" not in page
    assert reverse("settings") not in page


def link_revoked(link: ShareLink) -> None:
    links.revoke(link)


def link_expired(link: ShareLink) -> None:
    ShareLink.objects.update(expires_at=timezone.now())


def its_maker_lost_the_role(link: ShareLink) -> None:
    Membership.objects.update(role="viewer")


@pytest.mark.parametrize("end", [link_revoked, link_expired, its_maker_lost_the_role])
def test_a_link_that_has_ended_shows_nothing(operator: User, server: Server, end: Callable[[ShareLink], None]) -> None:
    link, secret = links.make(operator, server=server, lasts=timedelta(hours=1))
    client = opened(link, secret)
    end(link)
    assert "This link has ended" in client.get(reverse("shared", args=[link.pk])).text
    assert client.get(reverse("shared-part", args=[link.pk, "detail"])).status_code == 410
    assert Client().get(reverse("shared-part", args=[link.pk, "detail"])).status_code == 404
    assert client.post(reverse("shared-open", args=[link.pk]), {"secret": secret}).status_code == 403


def test_the_secret_of_one_link_does_not_open_another(operator: User, server: Server) -> None:
    _, secret = links.make(operator, server=server, lasts=timedelta(hours=1))
    other, _ = links.make(operator, server=server, lasts=timedelta(hours=1))
    assert Client().post(reverse("shared-open", args=[other.pk]), {"secret": secret}).status_code == 403


def test_an_admin_sees_and_revokes_every_link(
    operator: User, viewer_client: Client, admin_client: Client, server: Server
) -> None:
    link, _ = links.make(operator, server=server, lasts=timedelta(hours=1), note="for the vendor")
    assert "for the vendor" in admin_client.get(reverse("settings-shares")).text
    assert "for the vendor" not in viewer_client.get(reverse("settings-shares")).text
    admin_client.post(reverse("share-revoke", args=[link.pk]))
    link.refresh_from_db()
    assert link.revoked_at is not None


def test_the_kiosk_view_has_no_chrome(viewer_client: Client, server: Server) -> None:
    page = viewer_client.get(reverse("server", args=[server.pk]) + "?kiosk").text
    assert 'class="lone kiosk"' in page
    assert 'class="rail"' not in page
    assert f'data-feed="/ws/servers/{server.pk}/"' in page
