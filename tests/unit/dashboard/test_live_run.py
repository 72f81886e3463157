"""A run of streams while it goes: its counts, its log, its stop; and the list of runs in pages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_api.models import Server
from tests.support import sample_rows
from tests.support.sample_states import FakeServer
from workers import runlog
from workers.models import Run
from workers.scenarios import library

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


# -- while it goes


def under_way(server: Server, **fields: Any) -> Run:
    told: dict[str, Any] = {"state": "running", "finished_at": None, "heartbeat_at": timezone.now(), "started_at": timezone.now()}
    text = library.text_of("cancel-storm")
    return sample_rows.make_run(server, pairs=0, planned=3, scenario="cancel-storm", scenario_text=text, **{**told, **fields})


def test_a_load_under_way_shows_its_counts_and_its_log(viewer_client: Client, server: Server) -> None:
    counts = {
        "planned": 1200,
        "sent": 834,
        "done": 830,
        "failed": 3,
        "rate_per_s": 21.44,
        "ttft_p50_s": 0.213,
        "ttft_p95_s": None,
    }
    run = under_way(server, live={**counts, "at": timezone.now().timestamp()})
    runlog.note(run.pk, "Block 1 of 6 begins.", source="shard 2")
    runlog.note(run.pk, "The generator was behind.", "warning")
    text = viewer_client.get(reverse("run", args=[run.pk])).text
    figures = dict(re.findall(r"<div><dt>([^<]+)</dt><dd class=\"[^\"]*\">([^<]+?) ?<", text))
    assert figures == {
        **{"Planned": "1200", "Sent": "834", "Done": "830", "Failed": "3", "Rate": "21"},
        **{"TTFT so far, median": "0.21", "TTFT so far, p95": "none yet"},
    }
    assert text.index("The generator was behind.") < text.index("Block 1 of 6 begins.")
    assert "shard 2" in text
    assert "No observer reports the requests of this server" in text
    headers = {"HX-Request": "true", "HX-Target": "progress"}
    polled = viewer_client.get(reverse("run", args=[run.pk]), headers=headers).text
    assert 'id="run-log" hx-swap-oob="true"' in polled


def test_a_run_that_stops_says_which_slots_are_still_busy(viewer_client: Client, server: Server, monkeypatch: Any) -> None:
    state = FakeServer(server.pk, server.name).play(3).state()
    slots = [{**slot, "state": "prompt" if slot["id"] in (0, 2) else "idle"} for slot in state["slots"]]
    monkeypatch.setattr("scheduler_api.selectors.live_state", lambda pk: {**state, "slots": slots})
    begun = timezone.now() - timedelta(seconds=30)
    run = under_way(server, state="stopping", stop_requested=True, started_at=begun, progress_done=2, progress_total=7)
    text = viewer_client.get(reverse("run", args=[run.pk])).text
    assert "2 slots still busy (0, 2): a batch in flight runs to its end." in text
    assert 'id="fig-live-load"' in text
    assert 'hx-trigger="every 300ms"' in text
    assert "to go" not in text, "the blocks that are left are not run"
    monkeypatch.setattr("scheduler_api.selectors.live_state", lambda pk: {**state, "slots": []})
    assert "does not tell of its slots" in viewer_client.get(reverse("run", args=[run.pk])).text


def test_a_server_that_tells_of_no_requests_has_no_empty_chart(viewer_client: Client, server: Server) -> None:
    run = under_way(server)
    assert 'data-chart="fig-live-load"' in viewer_client.get(reverse("run", args=[run.pk])).text
    Server.objects.filter(pk=server.pk).update(kind="openai")
    text = viewer_client.get(reverse("run", args=[run.pk])).text
    assert f"{server.name} does not tell of its requests and slots, so the counts above are all there is." in text
    assert "data-chart" not in text


def test_a_scheduled_run_says_when_it_begins(viewer_client: Client, server: Server) -> None:
    run = under_way(server, state="waiting", started_at=None, not_before=timezone.now() + timedelta(hours=3))
    text = viewer_client.get(reverse("run", args=[run.pk])).text
    assert re.search(r"It starts in (3 h|2 h 59 min|2 h 60 min), when its server is free then\.", text)
    assert "Load and slots" not in text


# -- the list


def test_the_list_is_filtered_and_parted_into_pages(viewer_client: Client, operator: User, server: Server) -> None:
    other = sample_rows.make_server("edge")
    for number in range(27):
        sample_rows.make_run(server, operator, pairs=0, planned=1, scenario="agents" if number % 2 else "mixed-chat")
    sample_rows.make_run(other, None, pairs=0, planned=1, state="failed", error="No answer.")

    def listed(**query: str) -> str:
        return viewer_client.get(reverse("experiments"), query).text

    assert "page 1 of 2" in listed()
    assert "page 2 of 2" in listed(page="2")
    assert "page 2 of 2" in listed(page="99")
    assert listed(scenario="agents").count('data-l="state"') == 13
    assert listed(server="edge").count('data-l="state"') == 1
    assert listed(state="broken").count('data-l="state"') == 1
    assert listed(by="mira", state="finished", page="2").count('data-l="state"') == 2
    assert "?by=mira&amp;state=finished&amp;page=1" in listed(by="mira", state="finished", page="2")
    assert "No experiment is like that." in listed(by="nobody")
