"""The experiment pages by role, by state of a run, and what they send."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scheduler_api.models import Server, ServerKind
from tests.support import sample_rows
from tests.support.experiment_pages import figure, page
from tests.support.sample_states import STOCK_WHY, FakeServer
from workers import experiments as services
from workers.errors import ExperimentRefused
from workers.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


@pytest.fixture
def observed(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server with a live state, beside one that cannot switch and one that no observer sees."""
    stock = Server.objects.create(name="stock", kind=ServerKind.LLAMA_SERVER, base_url="http://127.0.0.1:8081")
    Server.objects.create(name="dark", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:8082")
    states = {
        server.pk: FakeServer(server.pk, server.name).play(3).state(),
        stock.pk: FakeServer(stock.pk, stock.name, kind="llama_server").play(3).state(),
    }
    monkeypatch.setattr("scheduler_api.selectors.live_states", lambda ids: {pk: states[pk] for pk in ids if pk in states})
    return server


# -- who may what


@pytest.mark.parametrize("name", ["experiments", "experiment-new", "run", "run-csv"])
def test_a_stranger_is_sent_to_the_login(client: Client, server: Server, name: str) -> None:
    args = [sample_rows.make_run(server, pairs=1).pk] if name.startswith("run") else []
    response = client.get(reverse(name, args=args))
    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("login"))


def test_a_viewer_sees_runs_and_can_neither_start_nor_stop(viewer_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=1, planned=8, state="running", finished_at=None)
    assert "Rotating against physical" in page(viewer_client, "experiments")
    text = page(viewer_client, "run", run.pk)
    assert 'id="stop"' not in text
    assert viewer_client.get(reverse("experiment-new")).status_code == 403
    assert viewer_client.post(reverse("experiment-new"), {}).status_code == 403
    assert viewer_client.post(reverse("run-stop", args=[run.pk])).status_code == 403
    run.refresh_from_db()
    assert not run.stop_requested


def test_a_viewer_may_take_the_samples(viewer_client: Client, server: Server) -> None:
    assert viewer_client.get(reverse("run-csv", args=[sample_rows.make_run(server, pairs=1).pk])).status_code == 200


@pytest.mark.parametrize("name", ["run", "run-csv"])
def test_an_unknown_run_is_not_found(operator_client: Client, name: str) -> None:
    assert operator_client.get(reverse(name, args=[404])).status_code == 404
    assert operator_client.post(reverse("run-stop", args=[404])).status_code == 404


def test_stopping_needs_a_post_with_a_token(operator: User, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=1, planned=8, state="running", finished_at=None)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator, backend="django.contrib.auth.backends.ModelBackend")
    assert strict.post(reverse("run-stop", args=[run.pk])).status_code == 403
    assert strict.get(reverse("run-stop", args=[run.pk])).status_code == 405


# -- list


def test_without_runs_the_list_says_how_to_start_one(operator_client: Client, viewer_client: Client) -> None:
    assert reverse("experiment-new") in page(operator_client, "experiments")
    assert "No experiment has been run yet." in page(viewer_client, "experiments")
    assert reverse("experiment-new") not in page(viewer_client, "experiments")


def test_the_list_gives_verdict_state_and_progress(operator_client: Client, operator: User, server: Server) -> None:
    sample_rows.make_run(server, operator, pairs=8)
    other = sample_rows.make_server("edge")
    sample_rows.make_run(other, None, pairs=0, planned=8, state="running", finished_at=None, progress_done=3)
    text = page(operator_client, "experiments")
    assert re.search(r"Short \d\.\d times sooner \(\d\.\d to \d\.\d, 8 pairs\)", text)
    assert "block 3 of 17" in text
    assert "2 runs, 1 not over" in text
    assert 'hx-trigger="every 2s"' in text


def test_a_list_of_ended_runs_does_not_poll(operator_client: Client, server: Server) -> None:
    sample_rows.make_run(server, pairs=1)
    text = page(operator_client, "experiments")
    assert "every 2s" not in text
    assert "1 pair, too few for an interval" in text


# -- form


def test_the_form_lists_what_cannot_run_with_the_reason(operator_client: Client, observed: Server) -> None:
    text = page(operator_client, "experiment-new")
    assert "No observer reports on it" in text
    assert STOCK_WHY in text
    assert re.search(rf'value="{observed.pk}" checked', text)
    assert text.count("data-reload") == 4
    assert text.count(" disabled data-reload") == 2
    assert "18,000" in text
    assert "40,000" in text


def test_the_form_starts_as_physical_against_rotating(operator_client: Client, observed: Server) -> None:
    text = page(operator_client, "experiment-new")
    chosen = re.findall(r'<select id="([ab]-\w+)".*?</select>', text, re.DOTALL)
    assert chosen[:2] == ["a-prefill_order", "a-rotation_start"]
    assert '<option value="physical" selected>' in text
    assert '<option value="rotating" selected>' in text


def test_starting_passes_on_what_the_form_says(
    operator_client: Client, operator: User, observed: Server, monkeypatch: Any
) -> None:
    asked: dict[str, Any] = {}

    def start(**given: Any) -> Run:
        asked.update(given)
        return sample_rows.make_run(observed, operator, pairs=0, planned=3, state="queued", started_at=None, finished_at=None)

    monkeypatch.setattr(services, "start_run", start)
    sent = {"server": observed.pk, "repetitions": "3", "scale": "0.5", "share": "0.2", "a-prefill_order": "physical"}
    more = {"a-rotation_start": "after_first", "b-prefill_order": "rotating", "b-rotation_start": "after_last", "b-phase": ""}
    response = operator_client.post(reverse("experiment-new"), {**sent, **more})
    assert response.status_code == 302
    assert asked["policy_a"] == {"prefill_order": "physical"}  # a rotation start counts with rotating alone
    assert asked["policy_b"] == {"prefill_order": "rotating", "rotation_start": "after_last"}
    assert (asked["repetitions"], asked["scale"], asked["share"]) == (3, 0.5, 0.2)
    assert (asked["server"], asked["by"]) == (observed, operator)


def test_a_refusal_stands_above_the_form_with_the_values_kept(
    operator_client: Client, observed: Server, monkeypatch: Any
) -> None:
    def refuse(**given: Any) -> Run:
        raise ExperimentRefused("studio-1 already has an experiment under way (run 12).")

    monkeypatch.setattr(services, "start_run", refuse)
    sent = {"server": observed.pk, "repetitions": "5", "scale": "0.25", "share": "0.3", "b-phase": "barrier"}
    response = operator_client.post(reverse("experiment-new"), sent)
    text = response.content.decode()
    assert response.status_code == 409
    assert text.index("already has an experiment under way") < text.index('id="new-form"')
    assert 'value="5"' in text
    assert 'value="0.25"' in text
    assert '<option value="barrier" selected>' in text
    assert "4500" in text  # cold tokens at this scale


@pytest.mark.parametrize(
    ("field", "value"),
    [("repetitions", "0"), ("repetitions", "2.5"), ("scale", "nan"), ("scale", "a lot"), ("share", "1"), ("scale", "")],
)
def test_a_number_that_is_none_starts_nothing(
    operator_client: Client, observed: Server, monkeypatch: Any, field: str, value: str
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(services, "start_run", lambda **given: started.append(given))
    sent = {"server": observed.pk, "repetitions": "5", "scale": "1", "share": "0.1", field: value}
    response = operator_client.post(reverse("experiment-new"), sent)
    assert response.status_code == 409
    assert f"it is {value or 'empty'}." in response.content.decode()
    assert started == []


def test_the_plan_alone_is_redrawn_for_other_numbers(operator_client: Client, observed: Server) -> None:
    url = reverse("experiment-new")
    query: dict[str, Any] = {"server": observed.pk, "repetitions": "2", "scale": "0.5", "share": "0.1"}
    text = operator_client.get(url, query, headers={"HX-Request": "true"}).content.decode()
    assert text.startswith('<section id="plan"')
    assert "9000" in text
    assert text.count('class="solid"') == 6  # five batches of 2048 for 9000 tokens, and the short prompt


def test_a_size_that_does_not_fit_is_said_before_starting(operator_client: Client, observed: Server) -> None:
    text = page(operator_client, "experiment-new", server=observed.pk, scale="5")
    assert "A slot holds" in text


def test_running_again_copies_the_run(operator_client: Client, observed: Server) -> None:
    run = sample_rows.make_run(observed, pairs=1, scale=0.25, policy_b={"phase": "barrier"})
    text = page(operator_client, "experiment-new", **{"from": run.pk})
    assert 'name="scale" type="number" min="0.005" max="20" step="any" required value="0.25"' in text
    assert '<option value="barrier" selected>' in text


# -- a run under way


def test_a_run_under_way_shows_progress_log_and_pairs_so_far(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(
        server,
        pairs=2,
        planned=8,
        state="running",
        finished_at=None,
        heartbeat_at=timezone.now(),
        progress_text="Block 5 of 16: pair 3, arm A",
    )
    text = page(operator_client, "run", run.pk)
    assert "<b>5</b> of 17 blocks" in text
    assert "Block 5 of 16: pair 3, arm A" in text
    assert text.index("4, pair 2") < text.index("1, pair 1")
    drawn = figure(text, "fig-short-pairs")
    assert len(drawn["data"][1]["x"]) == 2
    assert drawn["layout"]["xaxis"]["range"] == [0.5, 8.5]
    assert 'id="stop"' in text


def test_the_polled_part_is_a_part_and_asks_for_a_reload_at_the_end(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=1, planned=8, state="running", finished_at=None)
    headers = {"HX-Request": "true", "HX-Target": "progress"}
    text = operator_client.get(reverse("run", args=[run.pk]), headers=headers).content.decode()
    assert text.lstrip().startswith("<section")
    assert "<html" not in text
    Run.objects.filter(pk=run.pk).update(state="finished")
    response = operator_client.get(reverse("run", args=[run.pk]), headers=headers)
    assert response.headers["HX-Refresh"] == "true"


def test_a_silent_worker_and_a_queue_without_worker_are_told(operator_client: Client, server: Server) -> None:
    long_ago = timezone.now() - timedelta(seconds=9)
    run = sample_rows.make_run(server, pairs=0, planned=8, state="running", finished_at=None, heartbeat_at=long_ago)
    assert "The worker last reported 9." in page(operator_client, "run", run.pk)
    Run.objects.filter(pk=run.pk).update(
        state="queued", started_at=None, heartbeat_at=None, enqueued_at=long_ago, progress_text=""
    )
    text = page(operator_client, "run", run.pk)
    assert "No worker has taken it for 9." in text
    assert "no pair is done yet" in text


def test_stop_asks_the_run_to_stop(operator_client: Client, operator: User, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=1, planned=8, state="running", finished_at=None)
    response = operator_client.post(reverse("run-stop", args=[run.pk]))
    assert response.headers["Location"] == reverse("run", args=[run.pk])
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == ("stopping", "stopped by mira")
    text = page(operator_client, "run", run.pk)
    assert re.search(r'id="stop"[^>]* disabled', text)
