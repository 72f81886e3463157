"""Servers, audit and alerts over the API: of the servers that one may see, with filters."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from dashboard.people.models import Membership, ServerGroup
from scheduler_api import audit
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Delivery, Silence
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from tests.conftest import client_of
from tests.support.alerts import alert, rule
from tests.support.sample_states import Json
from tests.unit.api.conftest import Asking
from tests.unit.dashboard.conftest import KEY


@pytest.fixture
def elsewhere(db: None) -> Server:
    return Server.objects.create(name="elsewhere", kind="vllm", base_url="http://127.0.0.1:2", api_key=KEY, enabled=False)


@pytest.fixture
def ask_inside(server: Server, elsewhere: Server) -> Asking:
    """An operator of `server` alone."""
    group = ServerGroup.objects.create(name="lab")
    group.servers.add(server)
    user = User.objects.create_user("ilse")
    Membership.objects.create(user=user, group=group, role="operator")
    return Asking(client_of(user))


class TestServers:
    def test_by_name_and_kind(self, ask: Asking, server: Server, elsewhere: Server) -> None:
        assert [each["name"] for each in ask.get("servers")["items"]] == ["busy", "elsewhere"]
        assert [each["name"] for each in ask.get("servers", name="busy")["items"]] == ["busy"]
        assert [each["name"] for each in ask.get("servers", kind="vllm")["items"]] == ["elsewhere"]

    def test_the_live_state_alone(self, ask: Asking, server: Server, elsewhere: Server, states: dict[int, Json]) -> None:
        assert ask.get(f"servers/{server.pk}/state") == states[server.pk]
        assert "No observer" in ask("GET", f"servers/{elsewhere.pk}/state", status=409)["detail"]


class TestAudit:
    @pytest.fixture(autouse=True)
    def rows(self, server: Server, elsewhere: Server, operator: User) -> None:
        audit.record("preset.kept", "Nights", actor=operator, after={"values": {"phase": "barrier"}})
        audit.record(
            "policy.switched", "phase", server=server, actor_name="jonas", before={"phase": "continuous"}, why="streams stutter"
        )
        audit.record("policy.switched", "order", server=elsewhere, actor_name="jonas", outcome="refused")

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({}, [3, 2, 1]),
            ({"who": "jon"}, [3, 2]),
            ({"what": "preset"}, [1]),
            ({"what": "policy.switched", "outcome": "refused"}, [3]),
            ({"q": "stutter streams"}, [2]),
            ({"after": 2}, [3]),
            ({"before": 3, "limit": 1}, [2]),
            ({"from_": "2999-01-01"}, []),
            ({"to": "2999-01-01"}, [3, 2, 1]),
        ],
    )
    def test_filters(self, admin: User, query: Json, found: list[int]) -> None:
        first = AuditEntry.objects.earliest("seq").seq - 1
        query = {name: value + first if name in ("after", "before") else value for name, value in query.items()}
        told = Asking(client_of(admin)).get("audit", **query)["items"]
        assert [each["seq"] - first for each in told] == found

    def test_a_row_whole(self, admin: User, server: Server) -> None:
        [row] = Asking(client_of(admin)).get("audit", server=server.pk)["items"]
        assert (row["before"], row["after"], row["why"], row["server_name"]) == (
            {"phase": "continuous"},
            None,
            "streams stutter",
            "busy",
        )
        assert row["address"] == ""
        assert len(row["hash"]) == len(row["previous"]) == 64

    def test_what_one_may_see(self, ask_inside: Asking, ask: Asking) -> None:
        [row] = ask_inside.get("audit")["items"]
        assert (row["subject"], row["address"]) == ("phase", None)

    def test_a_time_that_is_none(self, ask: Asking) -> None:
        assert ask("GET", "audit", status=422, from_="yesterday")["field"] == "from"
        assert ask("GET", "audit", status=422, server="x")["field"] == "server"


class TestAlerts:
    @pytest.fixture
    def found(self, server: Server) -> Alert:
        return alert(rule(Kind.STUCK_SLOT), server)

    def test_listed_with_filters(self, ask: Asking, server: Server, elsewhere: Server, found: Alert) -> None:
        closed, other = alert(rule(Kind.DOWN), server, closed=True), alert(rule(Kind.STARVING), elsewhere)

        def listed(**query: object) -> set[int]:
            return {each["id"] for each in ask.get("alerts", **query)["items"]}

        assert listed() == {found.pk, other.pk}
        assert listed(state="all") == {found.pk, other.pk, closed.pk}
        assert listed(server=server.pk) == {found.pk}
        assert listed(kind="starving") == {other.pk}
        assert listed(acknowledged="true") == set()
        ask("GET", "alerts", status=422, state="both")

    def test_of_servers_that_one_may_see(self, ask_inside: Asking, elsewhere: Server, found: Alert) -> None:
        other = alert(rule(Kind.STARVING), elsewhere)
        everybody = alert(rule(Kind.OBSERVER_LOST), None)
        assert {each["id"] for each in ask_inside.get("alerts")["items"]} == {found.pk, everybody.pk}
        ask_inside("GET", f"alerts/{other.pk}", status=404)
        ask_inside("POST", f"alerts/{everybody.pk}/acknowledge", {}, 403)

    def test_the_first_who_acknowledges_counts(self, ask: Asking, ask_inside: Asking, found: Alert) -> None:
        Delivery.objects.create(alert=found, transition="opened", recipient_name="ops", channel="webhook", outcome="sent")
        told = ask("POST", f"alerts/{found.pk}/acknowledge", {})
        assert (told["acknowledged_by"], told["deliveries"][0]["recipient"]) == ("mira", "ops")
        assert ask_inside("POST", f"alerts/{found.pk}/acknowledge", {})["acknowledged_by"] == "mira"
        assert AuditEntry.objects.get().action == "alert.acknowledged"

    def test_a_viewer_acknowledges_nothing(self, ask_viewer: Asking, found: Alert) -> None:
        ask_viewer("POST", f"alerts/{found.pk}/acknowledge", {}, 403)
        ask_viewer("POST", "alerts/silences", {"minutes": 5, "reason": "why", "server": found.server_id}, 403)

    def test_silenced_for_a_time_and_ended(self, ask: Asking, server: Server, found: Alert) -> None:
        made = ask(
            "POST", "alerts/silences", {"minutes": 60, "reason": "a benchmark", "server": server.pk, "rule": found.rule_id}, 201
        )
        assert (made["kind"], made["server_name"], made["by"]) == ("stuck_slot", "busy", "mira")
        assert ask.get("alerts")["items"][0]["silenced_until"] == made["until"]
        assert ask.get("alerts/silences")["items"] == [made]
        ask("DELETE", f"alerts/silences/{made['id']}", status=204)
        assert ask.get("alerts/silences")["items"] == []
        assert [row.action for row in AuditEntry.objects.order_by("seq")] == ["silence.made", "silence.ended"]

    def test_a_silence_of_all_servers_needs_the_role_on_all(
        self, ask_inside: Asking, ask: Asking, admin: User, server: Server
    ) -> None:
        ask_inside("POST", "alerts/silences", {"minutes": 5, "reason": "why"}, 403)
        ask_inside("POST", "alerts/silences", {"minutes": 5, "reason": "why", "server": server.pk}, 201)
        wide = Silence.objects.create(until=timezone.now() + timedelta(hours=1), by=admin, by_name="ada", reason="x")
        ask_inside("DELETE", f"alerts/silences/{wide.pk}", status=403)

    def test_what_a_silence_cannot_name(self, ask: Asking, ask_inside: Asking, elsewhere: Server) -> None:
        assert (
            ask_inside("POST", "alerts/silences", {"minutes": 5, "reason": "x", "server": elsewhere.pk}, 422)["field"] == "server"
        )
        assert ask("POST", "alerts/silences", {"minutes": 5, "reason": "x", "rule": 12_345}, 422)["field"] == "rule"
        assert ask("POST", "alerts/silences", {"minutes": 50_000, "reason": "x"}, 422)["field"] == "minutes"
