"""Policies over the API: read field by field, reviewed, switched, taken back; presets, windows, guard rails, drift."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from scheduler_api import policies
from scheduler_api.api_problems import URN
from scheduler_api.audit.models import AuditEntry
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies import drifting, switching
from scheduler_api.policies.guards import Condition, Metric
from scheduler_api.policies.models import PolicyDrift, PolicyGuard, PolicyPreset, PolicyWindow
from tests.support.fake_policies import FakePolicies
from tests.support.sample_rows import make_run
from tests.support.sample_states import Json
from tests.unit.api.conftest import Asking, Show


@pytest.fixture
def at(server: Server) -> str:
    return f"servers/{server.pk}/policy"


class TestReading:
    def test_each_field_with_its_meaning_and_what_is_in_force(self, ask_viewer: Asking, at: str, fake: FakePolicies) -> None:
        fake.policy |= {
            "effective": fake.policy["effective"] | {"prefill_order": "physical"},
            "reasons": {"prefill_order": "unified"},
        }
        found = ask_viewer.get(at)
        field = next(each for each in found["fields"] if each["name"] == "prefill_order")
        assert (field["requested"], field["effective"], field["why"]) == ("rotating", "physical", "unified")
        assert field["meaning"]
        assert "physical" in field["values"]
        assert (found["can"], found["version"], found["drift"], found["guards"]) == (True, 41, None, [])
        assert all(each["why"] == "" for each in found["fields"] if each["name"] != "prefill_order")

    def test_of_a_server_that_cannot_switch(self, ask: Asking, shown: Show) -> None:
        found = ask.get(f"servers/{shown('stock').pk}/policy")
        assert (found["can"], found["version"], found["fields"]) == (False, None, [])
        assert found["why_not"]

    def test_of_a_server_that_does_not_answer(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        fake.error = ServerUnreachable("busy: connection refused")
        problem = ask("GET", at, status=502)
        assert (problem["type"], problem["detail"]) == (f"{URN}unreachable", "busy: connection refused")


class TestSwitching:
    def test_it_goes_the_way_of_the_page(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        body = {
            "set": {"phase": "barrier", "barrier_max_generation_tokens": 64},
            "expected_version": 41,
            "ttl_s": 600,
            "reason": "why",
        }
        change = ask("PATCH", at, body | {"guards": [{"metric": "oldest_wait", "over": 60, "for_s": 10}]})
        assert (change["actor_name"], change["version"], change["ttl_s"]) == ("mira", 42, 600)
        [asked] = fake.asked
        assert asked["guards"] == [Condition(Metric.OLDEST_WAIT, 60.0, 10.0)]
        assert (asked["expected_version"], asked["without_ttl"]) == (41, False)

    def test_a_guard_rail_that_cannot_be(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        body = {"set": {"phase": "barrier"}, "reason": "why", "guards": [{"metric": "error_rate", "over": 5, "for_s": 10}]}
        assert ask("PATCH", at, body, 422)["field"] == "guards"
        assert not fake.asked

    def test_what_can_stop_requests_is_to_be_confirmed(
        self, ask: Asking, at: str, server: Server, fake: FakePolicies, states: dict[int, Json]
    ) -> None:
        slots = states[server.pk]["slots"]
        slots[0] |= {"state": "generating", "n_predict": -1}
        body = {"set": {"phase": "barrier", "barrier_max_generation_tokens": None}, "reason": "why"}
        problem = ask("PATCH", at, body, 409)
        assert (problem["type"], problem["field"]) == (f"{URN}confirm", "understood")
        assert "generate" in problem["cautions"][0]
        assert not fake.asked
        ask("PATCH", at, body | {"understood": True})
        assert len(fake.asked) == 1

    def test_a_reason_of_spaces_is_none(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        assert ask("PATCH", at, {"set": {"phase": "barrier"}, "reason": "  "}, 422)["field"] == "reason"
        assert not fake.asked

    def test_a_conflict_carries_the_policy_in_force(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        fake.error = SwitchRefused("changed meanwhile", 409, {"version": 44})
        problem = ask("PATCH", at, {"set": {"phase": "barrier"}, "reason": "why"}, 409)
        assert (problem["type"], problem["current"]) == (f"{URN}version-conflict", {"version": 44})

    def test_a_review_changes_nothing_and_tells_what_to_know(
        self, ask: Asking, at: str, server: Server, fake: FakePolicies
    ) -> None:
        run = make_run(server, pairs=1, state="running")
        review = ask("POST", f"{at}/review", {"set": {"phase": "barrier"}})
        assert review["effective"]["phase"] == "barrier"
        told = [each["text"] for each in review["cautions"]]
        assert any("barrier_max_hold_ms" in text for text in told)
        assert f"Run {run.pk} measures this server now. Applying disturbs it." in told
        assert not fake.asked

    def test_a_viewer_neither_switches_nor_reviews(self, ask_viewer: Asking, at: str, fake: FakePolicies) -> None:
        ask_viewer("PATCH", at, {"set": {"phase": "barrier"}, "reason": "why"}, 403)
        ask_viewer("POST", f"{at}/review", {"set": {"phase": "barrier"}}, 403)
        ask_viewer("POST", f"{at}/revert", {}, 403)
        assert not fake.asked


class TestTakingBack:
    def test_the_change_in_force(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        change = ask("PATCH", at, {"set": {"prefill_order": "fair"}, "reason": "why"})
        back = ask("POST", f"{at}/revert", {})
        assert (back["changes"], back["reason"]) == ({"prefill_order": "rotating"}, f"takes back change {change['id']} by mira")
        assert (fake.asked[-1]["expected_version"], fake.asked[-1]["takes_back"]) == (42, True)

    def test_a_change_by_its_number(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        change = ask("PATCH", at, {"set": {"prefill_order": "fair"}, "reason": "why"})
        assert ask("POST", f"{at}/revert", {"change": change["id"]})["changes"] == {"prefill_order": "rotating"}
        ask("POST", f"{at}/revert", {"change": 12_345}, 404)

    def test_one_that_set_what_was_there(self, ask: Asking, at: str, server: Server, fake: FakePolicies) -> None:
        same = {"prefill_order": "rotating"}
        row = PolicyChange.objects.create(server=server, actor_name="x", outcome="applied", version=41, old=same, changes=same)
        assert "nothing to take back" in ask("POST", f"{at}/revert", {"change": row.pk}, 409)["detail"]

    def test_a_policy_that_was_set_for_a_time_elsewhere(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        fake.policy |= {"reverts_at": 2e9, "reverts_to": fake.policy["requested"] | {"prefill_order": "physical"}}
        back = ask("POST", f"{at}/revert", {})
        assert (back["changes"], back["reason"]) == ({"prefill_order": "physical"}, "went back before the deadline")

    def test_nothing_of_this_console(self, ask: Asking, at: str, fake: FakePolicies) -> None:
        problem = ask("POST", f"{at}/revert", {}, 409)
        assert (problem["type"], problem["current"]["version"]) == (f"{URN}version-conflict", 41)
        assert not fake.asked


class TestDrift:
    @pytest.fixture
    def drift(self, server: Server) -> PolicyDrift:
        known, found = {"phase": "barrier"}, {"phase": "continuous"}
        return PolicyDrift.objects.create(
            server=server, found_at=timezone.now(), cause="restart", expected=known, found=found, version=41
        )

    def test_it_stands_beside_the_policy_and_in_a_list(
        self, ask_viewer: Asking, at: str, fake: FakePolicies, drift: PolicyDrift
    ) -> None:
        assert ask_viewer.get(at)["drift"]["expected"] == {"phase": "barrier"}
        assert [each["id"] for each in ask_viewer.get(f"{at}/drifts", state="open")["items"]] == [drift.pk]
        assert ask_viewer.get(f"{at}/drifts", state="left")["items"] == []

    def test_it_is_left_once(self, ask: Asking, at: str, drift: PolicyDrift) -> None:
        left = ask("POST", f"{at}/drifts/{drift.pk}/leave", {})
        assert (left["state"], left["settled_by"]) == ("left", "mira")
        assert AuditEntry.objects.get().action == "policy.drift_accepted"
        assert "settled already" in ask("POST", f"{at}/drifts/{drift.pk}/reapply", {}, 409)["detail"]

    def test_it_is_applied_again(self, ask: Asking, at: str, drift: PolicyDrift, monkeypatch: pytest.MonkeyPatch) -> None:
        def reapply(found: PolicyDrift, by: Any) -> PolicyChange:
            return PolicyChange.objects.create(
                server=found.server, actor_name=by.username, changes=found.differences(), outcome="applied"
            )

        monkeypatch.setattr(drifting, "reapply", reapply)
        assert ask("POST", f"{at}/drifts/{drift.pk}/reapply", {})["changes"] == {"phase": "barrier"}


class TestGuards:
    @pytest.fixture
    def guard(self, server: Server) -> PolicyGuard:
        change = PolicyChange.objects.create(server=server, actor_name="mira", outcome="applied", version=41)
        wait = {"metric": "oldest_wait", "over": 60.0, "for_s": 10.0, "samples": 1}
        return PolicyGuard.objects.create(server=server, change=change, version=41, changed_at=0.0, conditions=[wait])

    def test_what_it_reads_now(self, ask_viewer: Asking, at: str, fake: FakePolicies, guard: PolicyGuard) -> None:
        [shown] = ask_viewer.get(f"{at}/guards", state="watching")["items"]
        assert (shown["id"], shown["conditions"][0]["words"]) == (guard.pk, "oldest wait over 60 s for 10 s")
        assert shown["conditions"][0]["reads"].endswith("s")
        assert ask_viewer.get(at)["guards"] == [shown]

    def test_it_is_taken_off_once(self, ask: Asking, at: str, guard: PolicyGuard) -> None:
        ask("DELETE", f"{at}/guards/{guard.pk}", status=204)
        guard.refresh_from_db()
        assert (guard.state, guard.text) == ("ended", "taken off by mira")
        ask("DELETE", f"{at}/guards/{guard.pk}", status=409)


NIGHTS: Json = {"name": "nights", "zone": "Europe/Berlin", "days": [4, 0], "begins": "22:00", "ends": "06:00"}


class TestWindows:
    def test_one_by_the_week(self, ask: Asking, at: str, server: Server) -> None:
        made = ask("POST", f"{at}/windows", NIGHTS | {"inside": {"phase": "barrier"}, "outside": "as-llama-server"}, 201)
        assert (made["when"], made["days"], made["by"]) == (
            "Mon, Fri 22:00 to 06:00 the day after, Europe/Berlin",
            [0, 4],
            "mira",
        )
        assert made["outside"]["prefill_order"] == "physical"
        assert made["next"]["what"] in ("begin", "end")
        assert ask.get(f"{at}/windows")["items"] == [made]
        assert AuditEntry.objects.get().action == "window.made"

    def test_one_once_in_its_zone(self, ask: Asking, at: str) -> None:
        day = f"{timezone.now() + timedelta(days=2):%Y-%m-%d}"
        body = {
            "name": "once",
            "zone": "Asia/Tokyo",
            "starts_at": f"{day}T09:00",
            "ends_at": f"{day}T10:00Z",
            "inside": {"phase": "barrier"},
        }
        made = ask("POST", f"{at}/windows", body, 201)
        assert (made["starts_at"], made["ends_at"]) == (f"{day}T00:00:00Z", f"{day}T10:00:00Z")

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"inside": {"phase": "sideways"}}, "inside"),
            ({"inside": {"phases": "barrier"}}, "inside"),
            ({"inside": "no-such-preset"}, "inside"),
            ({"inside": {}}, "inside"),
            ({"inside": {"phase": "barrier"}, "zone": "Mars"}, "zone"),
            ({"inside": {"phase": "barrier"}, "days": [7]}, "days"),
            ({"inside": {"phase": "barrier"}, "days": []}, "days"),
            ({"inside": {"phase": "barrier"}, "ends": "22:00"}, "ends"),
        ],
    )
    def test_what_cannot_be_is_named(self, ask: Asking, at: str, given: Json, field: str) -> None:
        assert ask("POST", f"{at}/windows", NIGHTS | given, 422)["field"] == field
        assert not PolicyWindow.objects.exists()

    def test_a_date_that_no_calendar_has(self, ask: Asking, at: str) -> None:
        body = {"name": "x", "zone": "Asia/Tokyo", "starts_at": "0001-01-01T00:00", "ends_at": "9999-12-31T23:59", "inside": {}}
        assert "out of range" in ask("POST", f"{at}/windows", body, 422)["detail"]

    def test_without_an_observer_its_fields_are_not_known(
        self, ask: Asking, at: str, server: Server, states: dict[int, Json]
    ) -> None:
        del states[server.pk]
        assert "no observer" in ask("POST", f"{at}/windows", NIGHTS | {"inside": {"phase": "barrier"}}, 409)["detail"]

    def test_switched_off_and_removed(self, ask: Asking, at: str) -> None:
        made = ask("POST", f"{at}/windows", NIGHTS | {"inside": {"phase": "barrier"}}, 201)
        assert ask("PATCH", f"{at}/windows/{made['id']}", {"enabled": False})["next"] is None
        ask("DELETE", f"{at}/windows/{made['id']}", status=204)
        ask("DELETE", f"{at}/windows/{made['id']}", status=404)
        assert [row.action for row in AuditEntry.objects.order_by("seq")] == ["window.made", "window.off", "window.removed"]


class TestPresets:
    def test_kept_read_and_removed(self, ask: Asking) -> None:
        made = ask("POST", "presets", {"name": "Nights", "meaning": "nobody chats", "values": {"decode_share": None}}, 201)
        assert (made["built_in"], made["by"]) == (False, "mira")
        assert ask.get(f"presets/{made['key']}") == made
        assert ask.get("presets")["items"][-1] == made
        ask("DELETE", f"presets/{made['key']}", status=204)
        assert not PolicyPreset.objects.exists()
        assert [row.action for row in AuditEntry.objects.order_by("seq")] == ["preset.kept", "preset.removed"]

    def test_those_of_the_console_stay(self, ask: Asking) -> None:
        assert ask.get("presets/equal-shares")["built_in"]
        ask("DELETE", "presets/equal-shares", status=409)
        assert ask("POST", "presets", {"name": "Equal shares", "values": {"phase": "barrier"}}, 409)["field"] == "name"

    def test_what_is_none(self, ask: Asking, ask_viewer: Asking) -> None:
        ask("POST", "presets", {"name": "x", "values": {}}, 422)
        ask("GET", "presets/none", status=404)
        ask_viewer("POST", "presets", {"name": "x", "values": {"phase": "barrier"}}, 403)
        ask_viewer("DELETE", "presets/equal-shares", status=403)


def test_every_switch_goes_through_the_one_service(ask: Asking, at: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which checks the version, reads back and writes the trail, whoever asks."""
    names = []

    def switch(server: Server, changes: Json, **given: Any) -> PolicyChange:
        names.append(given["actor_name"])
        return PolicyChange.objects.create(
            server=server, actor_name="mira", outcome="applied", old={"a": 1}, changes={"a": 2}, version=1
        )

    for module in (policies, switching):
        monkeypatch.setattr(module, "switch", switch)
    monkeypatch.setattr(policies, "read_policy", lambda server: {"version": 1, "requested": {}})
    ask("PATCH", at, {"set": {"a": 2}, "reason": "why"})
    ask("POST", f"{at}/revert", {})
    assert names == ["mira", "mira"]
