"""Starting a scenario made of streams from the form, again from a run, and from the command that the form shows."""

from __future__ import annotations

import html
import re
import subprocess
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard import command_line, experiment_form
from dashboard.charts.load import block_order
from scheduler_api.models import Server
from tests.support import sample_rows
from tests.support.launching import SENT, form, observed, reached, stock
from workers import planning, preflight, stored
from workers.models import Run, RunState
from workers.scenarios import library

__all__ = ["observed", "reached", "stock"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


# -- the form


def test_the_form_offers_every_scenario_and_the_operators_own(operator_client: Client, operator: User) -> None:
    stored.save(library.text_of("agents").replace("name: agents", "name: mine"), operator)
    text = form(operator_client)
    for name in [*library.names(), "mine"]:
        assert f'<option value="{name}"' in text


def test_choosing_a_scenario_fills_in_what_it_suggests_and_draws_it(operator_client: Client, server: Server) -> None:
    text = form(operator_client, scenario="late-arrival", server=server.pk)
    assert '<option value="barrier" selected>' in text
    assert "planbox" in text
    assert "3000 prompt tokens a second assumed" in text
    assert re.search(r"auto, about <b>0\.75", text)
    assert 'name="share"' not in text


def test_the_measured_rate_decides_the_scale_that_auto_is_shown_as(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=0, conditions={"fitted": {"speed": 8000.0}})
    text = form(operator_client, scenario="cancel-storm", server=server.pk)
    assert f"8000 prompt tokens a second, measured by run {run.pk}" in text
    assert re.search(r"auto, about <b>2<", text)


def test_the_rate_of_warm_behind_cold_counts_too(server: Server) -> None:
    sample_rows.make_run(server, pairs=0, conditions={"cold_alone_s": 2.0, "tokens": {"cold": 18_000}})
    assert planning.speed_of(server).tokens_per_s == 9000
    assert planning.speed_of(None).run is None


def test_auto_gives_way_to_the_context_of_a_slot() -> None:
    assert planning.auto_scale(4000, 1000, None, lambda scale: 1) == 4
    assert planning.auto_scale(4000, 1000, 3000, lambda scale: round(1000 * scale)) == pytest.approx(3.0, rel=0.06)
    assert planning.auto_scale(1, 1e6, 10, lambda scale: 99) == 0.005


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("shards", "0", "Shards must be a whole number from 1 to 64; it is 0."),
        ("seed", "-1", "The seed must be a whole number"),
        ("scale", "Auto!", "Scale must be a number from 0.005 to 20; it is Auto!."),
        ("floor", "99", "Floor must be a whole number from 0 to 20"),
        ("not_before", "yesterday", "The time to start must be a date and a time; it is yesterday."),
        ("not_before", "2001-01-01T00:00", "The time to start is over."),
        ("scenario", "none-such", "There is no scenario"),
    ],
)
def test_what_cannot_be_used_is_said_and_starts_nothing(
    operator_client: Client, server: Server, reached: list[int], field: str, value: str, told: str
) -> None:
    response = operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk, field: value})
    assert response.status_code == 409
    assert told in html.unescape(response.text)
    assert not Run.objects.exists()


def test_a_start_takes_all_that_the_form_says(
    operator_client: Client, operator: User, server: Server, reached: list[int]
) -> None:
    later = (timezone.localtime() + timedelta(days=2)).replace(second=0, microsecond=0)
    more = {"b-phase": "barrier", "order": "random", "floor": "1", "shards": "2", "not_before": later.strftime("%Y-%m-%dT%H:%M")}
    response = operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk, **more})
    run = Run.objects.get()
    assert response.headers["Location"] == reverse("run", args=[run.pk])
    assert (run.scenario, run.scenario_text) == ("cancel-storm", library.text_of("cancel-storm"))
    assert (run.policy_a, run.policy_b) == ({}, {"phase": "barrier"})
    assert (run.repetitions, run.scale, run.scale_auto, run.seed, run.shards) == (3, 0.5, False, 7, 2)
    assert (run.order, run.floor, run.not_before, run.created_by) == ("random", 1, later, operator)
    assert (run.state, reached) == (RunState.WAITING, [])


def test_an_own_scenario_starts_with_its_text(
    operator_client: Client, operator: User, server: Server, reached: list[int]
) -> None:
    text = library.text_of("agents").replace("name: agents", "name: mine")
    stored.save(text, operator)
    operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk, "scenario": "mine", "scale": "auto"})
    run = Run.objects.get()
    assert (run.scenario, run.scenario_text, run.scale_auto, run.state) == ("mine", text, True, RunState.QUEUED)
    assert reached == [run.pk]


def test_a_taken_server_is_waited_for_or_refused(operator_client: Client, server: Server, reached: list[int]) -> None:
    first = sample_rows.make_run(server, pairs=0, planned=8, state="running", finished_at=None)
    assert f"run {first.pk} has it now" in form(operator_client, **SENT, server=server.pk)
    refused = operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk, "wait": ""})
    assert refused.status_code == 409
    assert "already has an experiment under way" in refused.text
    operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk})
    run = Run.objects.first()
    assert run is not None
    assert run.state == RunState.WAITING
    page = operator_client.get(reverse("run", args=[run.pk])).text
    assert f"It waits for run {first.pk}, which has studio-1, next in line." in page
    assert "Cancel</button>" in page
    operator_client.post(reverse("run-stop", args=[run.pk]))
    run.refresh_from_db()
    assert run.state == RunState.STOPPED


def test_a_random_order_is_shown_with_a_seed_and_said_without(operator_client: Client, server: Server) -> None:
    drawn = form(operator_client, **{**SENT, "order": "random", "repetitions": "8", "floor": "0"}, server=server.pk)
    letters = re.findall(r'<i class="[ab]">([AB])</i>', drawn)
    assert len(letters) == 16
    assert tuple(letters) != block_order(8)
    said = form(operator_client, **{**SENT, "order": "random", "seed": "", "floor": "0"}, server=server.pk)
    assert "in an order drawn from the seed" in said


def test_the_floor_that_is_asked_for_counts_in_what_is_told(operator_client: Client, server: Server) -> None:
    text = form(operator_client, scenario="warm-behind-cold", server=server.pk, repetitions="4", floor="3")
    assert "15: one that learns how long each request takes alone, then 3 pairs of the floor and 4 pairs; 45 requests" in text
    assert text.count('<i class="a fl-b"') == 6


# -- again


@pytest.mark.parametrize("seed", ["same", "new"])
def test_a_run_goes_again_with_its_load_or_a_new_one(
    operator_client: Client, server: Server, reached: list[int], seed: str
) -> None:
    text = library.text_of("cancel-storm")
    before = sample_rows.make_run(server, pairs=0, planned=2, scenario="cancel-storm", scenario_text=text, seed=11, shards=2)
    operator_client.post(reverse("run-again", args=[before.pk]), {"seed": seed})
    run = Run.objects.exclude(pk=before.pk).get()
    assert (run.scenario_text, run.repetitions, run.shards, run.state) == (text, 2, 2, RunState.QUEUED)
    assert (run.seed == before.seed) == (seed == "same")


def test_a_viewer_starts_nothing_again(viewer_client: Client, server: Server, reached: list[int]) -> None:
    before = sample_rows.make_run(server, pairs=1)
    assert viewer_client.post(reverse("run-again", args=[before.pk])).status_code == 403
    assert Run.objects.count() == 1


def test_a_run_of_a_scenario_that_changed_can_be_edited_as_it_was(
    operator_client: Client, operator: User, server: Server
) -> None:
    text = library.text_of("agents").replace("name: agents", "name: mine")
    own = stored.save(text, operator)
    run = sample_rows.make_run(server, pairs=0, planned=2, scenario="mine", scenario_text=text, policy_b={"phase": "barrier"})
    assert "as run" not in form(operator_client, **{"from": run.pk})
    stored.save(text.replace("version: 1", "version: 2"), operator, own)
    shown = form(operator_client, **{"from": run.pk})
    assert f"mine, as run {run.pk} had it" in shown
    assert f"experiment run-{run.pk}.yaml --server" in shown
    asked = experiment_form.read({}, run)
    assert (asked.entry.text, asked.repetitions, asked.sent["b-phase"]) == (text, 2, "barrier")
    assert operator_client.get(reverse("run-scenario", args=[run.pk])).text == text


# -- the same from a shell


def as_a_shell(command: str) -> list[str]:
    """The words that a real shell makes of it."""
    script = f'set -- {command}\nprintf "%s\\0" "$@"'
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def shown_command(text: str) -> list[str]:
    found = re.search(r'<pre class="cmd"[^>]*>(.*?)</pre>', text, re.DOTALL)
    assert found is not None
    words = as_a_shell(html.unescape(found[1]))
    assert words[:3] == ["python", "manage.py", "experiment"]
    return words[3:]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"scenario": "mine", "scale": "auto", "seed": "", "wait": "", "shards": "3"},
        {"scenario": "warm-behind-cold", "scale": "0.2", "share": "0.3"},
        {"order": "random", "floor": "2", "b-phase": "barrier", "b-barrier_join": "window"},
    ],
)
def test_the_command_starts_the_same_run_as_the_form(
    operator_client: Client, operator: User, server: Server, reached: list[int], monkeypatch: Any, more: dict[str, str]
) -> None:
    monkeypatch.setattr(preflight, "of_pair", lambda *_: [])
    stored.save(library.text_of("agents").replace("name: agents", "name: mine"), operator)
    sent = {**SENT, "server": server.pk, "a-prefill_order": "physical", "b-prefill_order": "rotating", **more}
    words = shown_command(form(operator_client, **sent))
    operator_client.post(reverse("experiment-new"), sent)
    Run.objects.update(state=RunState.FINISHED)
    call_command("experiment", *words)
    second, first = Run.objects.all()
    for name in ("scenario", "scenario_text", "policy_a", "policy_b", "repetitions", "scale", "scale_auto", "share", "shards"):
        assert getattr(first, name) == getattr(second, name), name
    assert (first.order, first.floor, first.server) == (second.order, second.floor, second.server)
    assert (first.seed == second.seed) == bool(sent["seed"])


def test_names_are_quoted_for_the_shell() -> None:
    words = as_a_shell(command_line.command("a b", "it's $HOME", {"a": {}, "b": {"x": "'"}}, 2, 0.5))
    assert words[3:7] == ["a b", "--server", "it's $HOME", "--a"]
    assert words[9] == '{"x": "\'"}'
