"""Scenarios, runs and samples over the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_api.api_problems import URN
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from tests.support import sample_rows
from tests.support.launching import reached
from tests.support.sample_loads import make_load_run
from tests.support.sample_states import Json
from tests.unit.api.conftest import Asking
from workers import preflight
from workers.models import Run, RunState, StoredScenario
from workers.scenarios import library

__all__ = ["reached"]

pytestmark = pytest.mark.django_db

AGENTS = library.text_of("agents")
MINE = AGENTS.replace("name: agents", "name: mine")


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


@pytest.fixture
def hidden() -> Server:
    return sample_rows.make_server("elsewhere", "http://127.0.0.1:2")


class TestScenarios:
    def test_the_library_and_ones_own(self, ask: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=1)
        ask("POST", "scenarios", {"text": MINE}, 201)
        page = ask.get("scenarios")
        assert page["total"] == len(library.names()) + 1
        assert [each["name"] for each in ask.get("scenarios", own="true")["items"]] == ["mine"]
        pair = next(each for each in page["items"] if each["name"] == "warm-behind-cold")
        assert (pair["streams"], pair["last_run"], pair["own"]) == (["cold", "short"], run.pk, False)
        tag = page["items"][0]["tags"][0]
        assert all(tag in each["tags"] for each in ask.get("scenarios", tag=tag)["items"])

    def test_one_with_its_text_and_arms(self, ask_viewer: Asking) -> None:
        found = ask_viewer.get("scenarios/agents")
        assert found["text"] == AGENTS
        assert set(found["arms"]) == {"A", "B"}
        assert "neither in the library" in ask_viewer("GET", "scenarios/none", status=404)["detail"]

    def test_a_text_is_checked_and_nothing_kept(self, ask: Asking) -> None:
        assert ask("POST", "scenarios/check", {"text": MINE}) == {"ok": True, "errors": []}
        wrong = ask("POST", "scenarios/check", {"text": MINE.replace("version: 1", "version: one")})
        assert (wrong["ok"], wrong["errors"][0]["field"], wrong["errors"][0]["line"]) == (False, "version", 2)
        assert not StoredScenario.objects.exists()

    def test_saved_changed_copied_deleted(self, ask: Asking) -> None:
        ask("POST", "scenarios", {"text": MINE}, 201)
        assert ask("POST", "scenarios", {"text": MINE}, 422)["errors"][0]["field"] == "name"
        other = MINE.replace("name: mine", "name: ours")
        assert ask("POST", "scenarios/check", {"text": MINE, "own": "mine"})["ok"]
        assert ask("PUT", "scenarios/mine", {"text": other})["name"] == "ours"
        copy = ask("POST", "scenarios/ours/copy", {}, 201)
        assert (copy["name"], copy["copied_from"], copy["changed_by"]) == ("ours-2", "ours", "mira")
        ask("DELETE", "scenarios/ours", status=204)
        assert list(StoredScenario.objects.values_list("name", flat=True)) == ["ours-2"]
        actions = [row.action for row in AuditEntry.objects.order_by("seq")]
        assert actions == ["scenario.added", "scenario.changed", "scenario.added", "scenario.deleted"]

    def test_the_library_stays(self, ask: Asking) -> None:
        assert "copy it" in ask("DELETE", "scenarios/agents", status=404)["detail"]
        ask("PUT", "scenarios/agents", {"text": MINE}, 404)
        assert "form of its own" in ask("POST", "scenarios/warm-behind-cold/copy", {}, 422)["detail"]


class TestStarting:
    def test_a_scenario_of_the_library(self, ask: Asking, server: Server, reached: list[int]) -> None:
        run = ask("POST", "runs", {"server": server.pk, "scenario": "cancel-storm", "arms": "physical,rotating", "pairs": 2}, 201)
        assert (run["state"], run["pairs"], run["by"]) == ("queued", 2, "mira")
        assert run["arms"] == {"A": {"prefill_order": "physical"}, "B": {"prefill_order": "rotating"}}
        assert run["scenario_text"] == library.text_of("cancel-storm")
        assert reached == [run["id"]]
        assert AuditEntry.objects.get().action == "run.started"

    def test_a_text_with_its_own_arms_for_later(self, ask: Asking, server: Server, reached: list[int]) -> None:
        moment = timezone.now() + timedelta(hours=1)
        body = {"server": server.pk, "text": MINE, "seed": 7, "not_before": moment.isoformat(), "pairs": 1}
        run = ask("POST", "runs", body, 201)
        assert (run["scenario"], run["state"], run["seed"]) == ("mine", "waiting", 7)
        assert run["arms"] == ask.get("scenarios/agents")["arms"]
        assert not reached

    def test_the_pair(self, ask: Asking, server: Server, reached: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(preflight, "of_pair", lambda *_: [])
        run = ask("POST", "runs", {"server": server.pk, "scenario": "warm-behind-cold", "a": {}, "b": {"phase": "barrier"}}, 201)
        assert (run["arms"]["B"], run["scenario_text"], run["share"]) == ({"phase": "barrier"}, "", 0.1)

    @pytest.mark.parametrize(
        ("given", "status", "field"),
        [
            ({"scenario": "none"}, 422, "scenario"),
            ({"scenario": "agents", "text": MINE}, 422, "scenario"),
            ({}, 422, "scenario"),
            ({"scenario": "agents", "arms": "physical"}, 422, "arms"),
            ({"scenario": "agents", "arms": "A,B", "a": {}}, 422, "arms"),
            ({"scenario": "agents", "pairs": 0}, 422, "pairs"),
            ({"scenario": "agents", "not_before": "2020-01-01T00:00"}, 422, "not_before"),
            ({"scenario": "agents", "scale": "large"}, 422, "scale"),
            ({"text": "name: x"}, 422, "text"),
            ({"scenario": "agents", "order": "baab"}, 409, None),
            ({"scenario": "agents", "server": 12_345}, 422, "server"),
        ],
    )
    def test_what_cannot_be_is_named(
        self, ask: Asking, server: Server, reached: list[int], given: Json, status: int, field: str | None
    ) -> None:
        assert ask("POST", "runs", {"server": server.pk} | given, status).get("field") == field
        assert not Run.objects.exists()

    def test_a_second_one_is_refused_or_waits(self, ask: Asking, server: Server, reached: list[int]) -> None:
        sample_rows.make_run(server, pairs=1, state=RunState.RUNNING)
        body = {"server": server.pk, "scenario": "agents"}
        problem = ask("POST", "runs", body, 409)
        assert (problem["type"], "already has an experiment" in problem["detail"]) == (f"{URN}conflict", True)
        assert ask("POST", "runs", body | {"wait": True}, 201)["state"] == "waiting"

    def test_a_viewer_starts_and_stops_nothing(self, ask_viewer: Asking, server: Server, reached: list[int]) -> None:
        ask_viewer("POST", "runs", {"server": server.pk, "scenario": "agents"}, 403)
        run = sample_rows.make_run(server, pairs=1, state=RunState.RUNNING)
        ask_viewer("POST", f"runs/{run.pk}/stop", {}, 403)


class TestReading:
    def test_listed_with_filters(self, ask: Asking, server: Server, hidden: Server, operator: User) -> None:
        first = sample_rows.make_run(server, operator, pairs=2)
        running = sample_rows.make_run(hidden, pairs=1, state=RunState.RUNNING)
        broken = make_load_run(server, pairs=1, state=RunState.FAILED)

        def listed(**query: Any) -> list[int]:
            return [each["id"] for each in ask.get("runs", **query)["items"]]

        assert listed() == [broken.pk, running.pk, first.pk]
        assert listed(state="active") == listed(state="running") == listed(server=hidden.pk) == [running.pk]
        assert listed(state="broken") == listed(scenario="victim-and-attacker") == [broken.pk]
        assert listed(by="mira") == [first.pk]
        assert ask.get("runs", by="mira")["items"][0]["verdict"] is None
        assert ask.get("runs", by="mira", verdicts="true")["items"][0]["verdict"]

    def test_one_with_its_log(self, ask_viewer: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=2)
        run.log_lines.create(at=timezone.now(), source="console", text="Sent to the workers.")
        found = ask_viewer.get(f"runs/{run.pk}")
        assert (found["seed"], found["progress"]["total"], found["log"][0]["text"]) == (7, 5, "Sent to the workers.")
        ask_viewer("GET", "runs/12345", status=404)

    def test_what_the_pair_found(self, ask_viewer: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=4)
        result = ask_viewer.get(f"runs/{run.pk}/result")
        assert (result["run"], result["complete_pairs"], result["arms"]["B"]) == (run.pk, 4, "rotating")
        assert result["verdict"]
        assert any(each["key"] == "short_wall" for each in result["measures"])
        assert "timelines" not in result
        assert ask_viewer.get(f"runs/{run.pk}")["verdict"]
        assert ask_viewer.get(f"runs/{run.pk}/export.json")["format"] == "slotboard-run"

    def test_what_a_load_found(self, ask_viewer: Asking, server: Server) -> None:
        run = make_load_run(server, pairs=2)
        result = ask_viewer.get(f"runs/{run.pk}/result")
        assert (result["complete_pairs"], set(result["outcomes"])) == (2, {"A", "B"})

    def test_one_that_is_not_over_has_no_result_and_can_be_stopped(self, ask: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=1, state=RunState.RUNNING)
        assert "is not over" in ask("GET", f"runs/{run.pk}/result", status=409)["detail"]
        assert "cannot be exported" in ask("GET", f"runs/{run.pk}/export.json", status=409)["detail"]
        stopped = ask("POST", f"runs/{run.pk}/stop", {})
        assert (stopped["state"], stopped["stop_reason"]) == ("stopping", "stopped by mira")
        assert AuditEntry.objects.get().action == "run.stopped"

    def test_an_imported_run_belongs_to_nobodys_server(self, ask: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=1, imported={"server": {"name": "far"}})
        Run.objects.filter(pk=run.pk).update(server=None)
        assert (ask.get(f"runs/{run.pk}")["server_name"], ask.get(f"runs/{run.pk}")["server"]) == ("far", None)


class TestSamples:
    def test_a_page_with_filters(self, ask_viewer: Asking, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=3)
        page = ask_viewer.get(f"runs/{run.pk}/samples", limit=4)
        assert (page["total"], len(page["items"])) == (run.samples.count(), 4)
        first = run.samples.order_by("block__index", "sent_at", "pk").first()
        assert first is not None
        assert (page["items"][0]["stream"], page["items"][0]["wall_s"]) == (first.role, first.wall_s)
        short = ask_viewer.get(f"runs/{run.pk}/samples", stream="short", arm="B", pair=2)
        assert (short["total"], short["items"][0]["pair"]) == (1, 2)
        ask_viewer("GET", "runs/12345/samples", status=404)

    def test_the_csv_is_that_of_the_page(self, viewer_client: Client, server: Server) -> None:
        run = sample_rows.make_run(server, pairs=1)
        run.samples.update(error="=cmd|x")
        answer = viewer_client.get(f"/api/runs/{run.pk}/samples.csv")
        assert b"".join(answer) == viewer_client.get(reverse("run-csv", args=[run.pk])).content
        assert answer.headers["Content-Type"].startswith("text/csv")
