"""Conflicts side by side, presets and files, guard rails in the form, taking back, drift; and the trail of it all on its page."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard import cards, policy_conflict
from scheduler_api import audit
from scheduler_api.alerts.kinds import Kind
from scheduler_api.audit.models import AuditEntry
from scheduler_api.exceptions import SwitchRefused
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies.guards import Condition, Metric
from scheduler_api.policies.models import PolicyDrift, PolicyPreset, PolicyWindow
from tests.support.alerts import alert, rule
from tests.support.fake_policies import FakePolicies
from tests.support.sample_states import Json
from tests.unit.dashboard.test_policies_page import form

Show = Callable[[str], Server]


@pytest.fixture
def server(shown: Show) -> Server:
    return shown("busy")


def url(name: str, server: Server, *more: int) -> str:
    return reverse(name, args=[server.pk, *more])


class TestConflict:
    def test_both_sides_stand_beside_what_they_began_from(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        sent = form(fake, phase="barrier") | {"reason": "streams stutter", "ttl": "300"}
        theirs = fake.policy | {"version": 55, "requested": fake.policy["requested"] | {"prefill_order": "physical"}}
        PolicyChange.objects.create(
            server=server, actor_name="jonas", reason="back to normal", old=fake.policy["requested"],
            changes={"prefill_order": "physical"}, version=55, outcome="applied",
        )  # fmt: skip
        fake.error = SwitchRefused("changed meanwhile", 409, theirs)
        response = operator_client.post(url("policy-switch", server), sent)
        assert response.status_code == 409
        assert "You began from version 41; the server is at version 55 now. jonas at" in response.text
        assert "prefill order: rotating to physical (back to normal)" in response.text
        assert 'name="set.phase" value="continuous" checked' in response.text  # theirs, unless one chooses
        assert 'name="set.phase" value="barrier"' in response.text
        assert "not touched: theirs stays" in response.text

    def test_what_is_chosen_as_mine_is_set_on_top_of_theirs(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        fake.policy = fake.policy | {"version": 55, "requested": fake.policy["requested"] | {"prefill_order": "physical"}}
        sent = {"version": "55", "seen": json.dumps(fake.policy["requested"]), "set.phase": "barrier", "reason": "why", "ttl": ""}
        operator_client.post(url("policy-switch", server), sent)
        assert [(each["changes"], each["expected_version"]) for each in fake.asked] == [({"phase": "barrier"}, 55)]

    def test_rows(self) -> None:
        base = {"phase": "continuous", "prefill_chunk": None, "prefill_order": "fair"}
        rows = policy_conflict.rows(
            base, base | {"phase": "barrier", "prefill_chunk": 8}, {"phase": "barrier", "prefill_order": "rotating"}
        )
        assert [(row.name, row.theirs, row.mine, row.choose) for row in rows] == [
            ("phase", "barrier", "barrier", False),
            ("prefill_chunk", "8", "off", False),
            ("prefill_order", "fair", "rotating", True),
        ]


class TestGuardRails:
    def test_they_go_with_the_change_and_bring_a_deadline(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        rails = {
            "guard.error_rate.on": "on",
            "guard.error_rate.over": "2.5",
            "guard.error_rate.for": "30",
            "guard.error_rate.samples": "10",
        }
        operator_client.post(url("policy-switch", server), form(fake, phase="barrier") | rails | {"reason": "why", "ttl": ""})
        assert fake.asked[0]["guards"] == [Condition(Metric.ERROR_RATE, 0.025, 30.0, 10)]
        assert fake.asked[0]["ttl_s"] == 3600.0
        assert not fake.asked[0]["without_ttl"]

    @pytest.mark.parametrize("rails", [{"guard.ttft_p95.over": "soon"}, {"guard.ttft_p95.over": "-1"}])
    def test_what_is_no_guard_rail_is_not_sent(
        self, operator_client: Client, server: Server, fake: FakePolicies, rails: dict[str, str]
    ) -> None:
        sent = form(fake, phase="barrier") | {"guard.ttft_p95.on": "on", "reason": "why"} | rails
        response = operator_client.post(url("policy-switch", server), sent)
        assert (response.status_code, fake.asked) == (422, [])
        assert "Guard rail p95 TTFT" in response.text

    def test_minutes_of_ones_own(self, operator_client: Client, server: Server, fake: FakePolicies) -> None:
        sent = form(fake, phase="barrier") | {"reason": "why", "ttl": "1800"}
        operator_client.post(url("policy-switch", server), sent | {"minutes": "7"})
        assert fake.asked[0]["ttl_s"] == 420.0
        assert operator_client.post(url("policy-switch", server), sent | {"minutes": "0"}).status_code == 422


def test_what_can_stop_requests_is_to_be_confirmed(
    operator_client: Client, server: Server, fake: FakePolicies, states: dict[int, Json]
) -> None:
    states[server.pk]["slots"][0] |= {"state": "generating", "client": "agent", "n_predict": -1}
    sent = form(fake, phase="barrier") | {"reason": "why", "ttl": "300"}
    response = operator_client.post(url("policy-switch", server), sent)
    assert response.status_code == 422
    assert "confirm that you have read it" in response.text
    assert "generates without an end" in response.text
    assert fake.asked == []
    operator_client.post(url("policy-switch", server), sent | {"understood": "on"})
    assert len(fake.asked) == 1


class TestTakingBack:
    def test_one_click_sets_what_was_before_at_the_version_of_the_change(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        old = fake.policy["requested"] | {"prefill_order": "physical"}
        change = PolicyChange.objects.create(
            server=server, actor_name="jonas", old=old, changes={"prefill_order": "rotating"}, version=41, outcome="applied"
        )
        assert "Take it back" in operator_client.get(url("policies", server)).text
        operator_client.post(url("policy-revert", server, change.pk))
        assert fake.asked[0]["changes"] == {"prefill_order": "physical"}
        assert (fake.asked[0]["expected_version"], fake.asked[0]["reason"]) == (41, f"takes back change {change.pk} by jonas")
        assert operator_client.post(url("policy-revert", server, change.pk + 99)).status_code == 404

    def test_an_older_change_is_not_offered(self, operator_client: Client, server: Server, fake: FakePolicies) -> None:
        PolicyChange.objects.create(server=server, old={"phase": "x"}, changes={"phase": "y"}, version=40, outcome="applied")
        assert "Take it back" not in operator_client.get(url("policies", server)).text


class TestPresetsAndFiles:
    def test_a_preset_is_reviewed_before_anything_is_sent(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        text = operator_client.get(url("policies", server), {"preset": "as-llama-server"}).text
        assert "of As llama-server" in text
        assert "<ins>physical</ins>" in text
        assert "left out" in text  # fields that this server does not have
        assert fake.asked == []

    def test_an_exported_policy_is_imported_again(self, operator_client: Client, server: Server, fake: FakePolicies) -> None:
        response = operator_client.get(url("policy-export", server))
        assert response.headers["Content-Disposition"] == 'attachment; filename="busy.policy.json"'
        told = json.loads(response.content)
        told["values"]["prefill_order"] = "physical"
        file = SimpleUploadedFile("p.json", json.dumps(told).encode(), "application/json")
        text = operator_client.post(url("policy-import", server), {"file": file}).text
        assert "<ins>physical</ins>" in text
        assert "Dry run passed" in text
        assert fake.asked == []

    def test_a_value_that_the_server_does_not_take_is_named(
        self, operator_client: Client, server: Server, fake: FakePolicies
    ) -> None:
        text = '{"slotboard_policy": 1, "name": "x", "values": {"prefill_order": "sideways"}}'
        page = operator_client.post(url("policy-import", server), {"text": text}).text
        assert "prefill_order is one of" in page
        assert "formaction" not in page

    def test_one_is_kept_and_removed_and_both_are_written_down(
        self, operator_client: Client, server: Server, fake: FakePolicies, operator: User
    ) -> None:
        operator_client.post(url("preset-add", server), {"name": "As it was", "meaning": "before the trial"})
        row = PolicyPreset.objects.get()
        assert (row.values, row.by_name) == (fake.policy["requested"], "mira")
        operator_client.post(url("preset-remove", server), {"preset": str(row.pk)})
        assert not PolicyPreset.objects.exists()
        assert list(AuditEntry.objects.order_by("seq").values_list("action", flat=True)) == ["preset.kept", "preset.removed"]
        refused = operator_client.post(url("preset-add", server), {"name": "As llama-server"}, follow=True)
        assert "choose another name" in refused.text


def test_a_window_is_kept_from_the_form(operator_client: Client, server: Server, fake: FakePolicies) -> None:
    given = {
        "name": "office", "repeats": "weekly", "days": ["0", "4"], "begins": "08:00", "ends": "18:00", "zone": "Europe/Berlin",
        "inside": "as-llama-server", "outside": "now",
    }  # fmt: skip
    assert operator_client.post(url("policy-windows", server), given).status_code == 302
    row = PolicyWindow.objects.get()
    assert (row.days, row.inside["prefill_order"]) == ([0, 4], "physical")
    assert row.outside == fake.policy["requested"]
    text = operator_client.get(url("policy-windows", server)).text
    assert "Mon, Fri 08:00 to 18:00, Europe/Berlin" in text
    operator_client.post(url("policy-window", server, row.pk), {"act": "off"})
    row.refresh_from_db()
    assert not row.enabled
    once = given | {"repeats": "once", "name": "once", "starts_at": "2099-01-01T10:00", "ends_at": "2099-01-01T11:00"}
    operator_client.post(url("policy-windows", server), once)
    assert PolicyWindow.objects.get(name="once").starts_at.isoformat() == "2099-01-01T09:00:00+00:00"  # type: ignore[union-attr]
    wrong = operator_client.post(url("policy-windows", server), given | {"zone": "Mars/Olympus", "name": "x"})
    assert (wrong.status_code, "no time zone Mars/Olympus" in wrong.text) == (422, True)


class TestDrift:
    @pytest.fixture
    def drift(self, server: Server) -> PolicyDrift:
        return PolicyDrift.objects.create(
            server=server,
            found_at=timezone.now(),
            cause="elsewhere",
            expected={"phase": "barrier"},
            found={"phase": "continuous"},
            version=41,
            reason="curl",
        )

    def test_it_stands_above_every_page_of_the_server_and_on_the_overview(
        self, operator_client: Client, server: Server, fake: FakePolicies, drift: PolicyDrift
    ) -> None:
        for name in ("server", "policies", "server-history", "policy-windows"):
            text = operator_client.get(url(name, server)).text
            assert "The policy was changed from elsewhere." in text, name
            assert "phase: barrier was set, continuous is there" in text, name
        assert "Its policy was changed from elsewhere." in operator_client.get(reverse("overview")).text

    def test_it_is_left_by_choice(self, operator_client: Client, server: Server, fake: FakePolicies, drift: PolicyDrift) -> None:
        operator_client.post(url("policy-drift", server), {"drift": str(drift.pk), "act": "leave"})
        drift.refresh_from_db()
        assert (drift.state, drift.settled_by) == ("left", "mira")
        assert "changed from elsewhere" not in operator_client.get(url("policies", server)).text


def test_overview_cards_show_the_worst_open_alert(viewer_client: Client, shown: Show) -> None:
    calm, wrong = shown("idle"), shown("busy")
    alert(rule(Kind.STUCK_SLOT), wrong)
    alert(rule(Kind.STARVING), wrong, key="x")
    alert(rule(Kind.STARVING), calm, closed=True)
    text = viewer_client.get(reverse("overview")).text
    assert "2 alerts, worst critical: Stuck slot" in text
    assert text.count('class="al ') == 1
    assert '<use href="#m-stuck"/>' in text
    assert cards.alerts_of(None) is None


class TestAuditPage:
    @pytest.fixture
    def trail(self, server: Server, shown: Show) -> list[Any]:
        other = shown("wide")
        change: Any = {
            "before": {"phase": "continuous"},
            "after": {"asked": {"phase": "barrier"}, "version": 3},
            "why": "streams stutter",
        }
        return [
            audit.record("policy.switched", "phase: continuous to barrier", server=server, actor_name="mira", **change),
            audit.record("run.started", "=warm", server=other, actor_name="jonas", ref="run 7"),
            audit.record("person.added", "vera", actor_name="ada"),
        ]

    def whys(self, client: Client, **query: str) -> list[str]:
        text = client.get(reverse("audit"), query).text
        return [word for word in ("streams stutter", "=warm", "person.added") if word in text]

    def test_it_is_found_by_who_what_server_words_and_time(self, admin_client: Client, trail: list[Any], server: Server) -> None:
        assert self.whys(admin_client) == ["streams stutter", "=warm", "person.added"]
        assert self.whys(admin_client, who="jonas") == ["=warm"]
        assert self.whys(admin_client, what="policy") == ["streams stutter"]
        assert self.whys(admin_client, server=str(server.pk)) == ["streams stutter"]
        assert self.whys(admin_client, q="stutter") == ["streams stutter"]
        tomorrow = f"{timezone.localtime() + timedelta(days=1):%Y-%m-%d}"
        today = f"{timezone.localtime():%Y-%m-%d}"
        assert self.whys(admin_client, **{"from": tomorrow}) == []
        assert len(self.whys(admin_client, **{"from": today, "to": today})) == 3
        assert admin_client.get(reverse("audit"), {"from": "yesterday"}).status_code == 422

    def test_before_and_after_stand_in_the_row(self, admin_client: Client, trail: list[Any]) -> None:
        text = admin_client.get(reverse("audit"), {"q": "stutter"}).text
        assert "<del>continuous</del>" in text
        assert "<ins>barrier</ins>" in text

    def test_who_does_not_administer_sees_no_rows_about_people(self, viewer_client: Client, trail: list[Any]) -> None:
        assert self.whys(viewer_client) == ["streams stutter", "=warm"]

    def test_pages(self, admin_client: Client) -> None:
        for number in range(60):
            audit.record("scenario.kept", f"scenario-{number:02}", actor_name="mira")
        first, second = (admin_client.get(reverse("audit"), {"who": "mira", "page": page}).text for page in ("1", "2"))
        assert "scenario-59" in first
        assert "scenario-09" not in first
        assert "scenario-09" in second
        assert "?who=mira&amp;page=2" in first

    def test_exports_are_no_formulas_and_follow_the_filter(
        self, admin_client: Client, viewer_client: Client, trail: list[Any]
    ) -> None:
        response = admin_client.get(reverse("audit-csv"), {"who": "jonas"})
        header, *rows = csv.reader(b"".join(response).decode().splitlines())
        assert len(rows) == 1
        assert dict(zip(header, rows[0], strict=True))["subject"] == "'=warm"
        told = json.loads(b"".join(admin_client.get(reverse("audit-json"))))
        assert [each["seq"] for each in told] == [3, 2, 1]
        assert told[2]["after"]["asked"] == {"phase": "barrier"}
        seen = json.loads(b"".join(viewer_client.get(reverse("audit-json"))))
        assert "address" not in seen[0]
