"""Pages that show what runs found: a load's result, two runs beside each other, a trend, a badge, an import."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from dashboard.definitions import definitions
from dashboard.people import links
from dashboard.people.models import Membership, ServerGroup
from scheduler_api.models import Server
from tests.conftest import client_of
from tests.support import sample_loads, sample_rows
from tests.support.experiment_pages import figure, page
from workers.exporting.document import as_json
from workers.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


def words_of(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<script.*?</script>|<[^>]+>", " ", text, flags=re.DOTALL))


def many_values(requests: int = 40) -> list[sample_loads.Ask]:
    return sample_loads.many_streams(6, requests, 0.02)


# -- the result of a load


def test_a_load_has_its_verdict_first_and_each_stream_by_its_measures(viewer_client: Client, server: Server) -> None:
    text = page(viewer_client, "run", sample_loads.make_load_run(server, pairs=6).pk)
    told = words_of(text)
    assert re.search(r"Under rotating: victim: TTFT, mean \d\.\d times sooner \(", told)
    assert text.index('class="verdict"') < text.index('id="h-meas"') < text.index('id="h-pairs"') < text.index('id="h-samples"')
    assert "victim 8 requests, one at a time; 200 tokens in, 32 out; slot 1 limits: TTFT 2.0 s, ITL" in told
    row = re.search(r"TTFT</a> <span class=\"u\">mean.*?</tr>", text[text.index("<b>victim</b>") :], re.DOTALL)
    assert row is not None
    assert "m-left" in row[0]
    assert "faster" in row[0]
    assert re.search(r"−0\.\d\d \(−0\.\d\d to −0\.\d\d\)", row[0])
    assert len(figure(text, "fig-1-dist")["readouts"]) > 8
    assert {trace["y"][0] for trace in figure(text, "fig-timeline-a")["data"]} == {0, 1}
    assert "Every request that counts was answered: 66 under A, 66 under B." in told


def test_every_figure_links_to_a_definition_that_is_there(viewer_client: Client, server: Server) -> None:
    anchors = {entry.anchor for entry in definitions().entries}
    runs = [sample_loads.make_load_run(server, pairs=1), sample_rows.make_run(server, pairs=1)]
    for run in runs:
        linked = set(re.findall(reverse("definitions") + r"#([\w-]+)", page(viewer_client, "run", run.pk)))
        assert {"ratio", "interval", "verdict", "e2e"} <= linked
        assert linked <= anchors


def test_another_measure_is_drawn_in_its_own_unit(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=1)
    assert figure(page(viewer_client, "run", run.pk), "fig-1-pairs")["layout"]["yaxis"]["ticktext"][-1].endswith(" s")
    text = page(viewer_client, "run", run.pk, measure="itl")
    assert figure(text, "fig-1-pairs")["layout"]["yaxis"]["ticktext"][-1].endswith(" ms")
    assert 'href="?measure=itl#h-pairs" aria-current="true"' in text
    assert figure(page(viewer_client, "run", run.pk, measure="nonsense"), "fig-0-pairs")


def test_many_streams_are_folded_with_their_headline(viewer_client: Client, server: Server) -> None:
    names = "".join(
        f"  - {{name: tenant-{number:02}, arrivals: {{kind: poisson, rate: 1, for_s: 9}}, prompt: {{tokens: 9}}, output: 8}}\n"
        for number in range(1, 7)
    )
    text = f"name: many\nversion: 1\ntitle: Many\nsummary: Six.\nwritten_for: 4000\nstreams:\n{names}"
    run = sample_loads.make_load_run(server, scenario="many", text=text, pairs=1, asks=lambda: many_values(8))
    told = page(viewer_client, "run", run.pk)
    assert re.findall(r"<summary><b>(tenant-\d\d)</b>", told) == ["tenant-05", "tenant-06"] * 2
    assert len(figure(told, "fig-5-dist")["data"]) == 4


def test_outcomes_other_than_answers_are_counted_by_arm(viewer_client: Client, server: Server) -> None:
    def spoil(pair: int, arm: str, asks: list[sample_loads.Ask]) -> None:
        if arm == "A":
            for ask in asks[3:5]:
                ask.outcome, ask.tokens, ask.done = "timeout", [], None

    told = words_of(page(viewer_client, "run", sample_loads.make_load_run(server, pairs=2, spoil=spoil).pk))
    assert "Answered: A 18 of 22, B 22 of 22." in told
    assert re.search(r"victim timed out 4 0", told)
    assert "4 of 44 requests failed; they have an outcome and no times." in told


def test_levels_say_what_each_arm_carries(viewer_client: Client, server: Server) -> None:
    def spoil(pair: int, arm: str, asks: list[sample_loads.Ask]) -> None:
        for ask in asks:
            if ask.stage > (1 if arm == "A" else 2):
                ask.tokens = [moment + 30 for moment in ask.tokens]
                ask.done = ask.tokens[-1]

    text = (
        "name: steps\nversion: 1\ntitle: Steps\nsummary: Rates.\nwritten_for: 4000\nstreams:\n  - name: request\n"
        f"    arrivals: {{kind: stages, stages: [{', '.join(f'{{rate: {2**power}, for_s: 9}}' for power in range(4))}]}}\n"
        "    prompt: {tokens: 800}\n    output: 16\n    slo: {ttft_s: 1.5}\n"
    )
    run = sample_loads.make_load_run(
        server, scenario="steps", text=text, pairs=1, asks=sample_loads.levels, spoil=spoil, conditions={}
    )
    page_text = page(viewer_client, "run", run.pk)
    told = words_of(page_text)
    assert (
        "A (physical) carries 2 requests/s and not 4 requests/s; B (rotating) carries 4 requests/s and not 8 requests/s." in told
    )
    assert page_text.count("the last level carried") == 2
    assert figure(page_text, "fig-levels-0")["layout"]["xaxis"]["ticktext"] == ["1", "2", "4", "8/s"]


def test_a_lost_run_is_marked_and_what_is_there_is_readable(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=2, planned=8, state="lost", error="The worker was not heard of")
    run.blocks.filter(pair=2, arm="B").update(interrupted=True)
    told = words_of(page(viewer_client, "run", run.pk))
    assert "The worker stopped reporting; 1 of 8 pairs are complete." in told
    assert "not enough runs" in told
    assert "the server restarted within it, so it does not count" in told
    of_a_pair = run.samples.filter(pair=1).count()
    assert f"{of_a_pair} counted, {of_a_pair} of pairs that a restart cut, none failed" in told


def test_a_load_without_any_pair_is_a_page_without_charts(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=0, planned=8, state="failed", error="The calibration failed", conditions={})
    text = page(viewer_client, "run", run.pk)
    assert "Failed; no pair is complete, so there is no result. The calibration failed." in text
    assert "data-chart" not in text


def test_names_from_a_scenario_cannot_become_markup(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=1)
    bad = "</script><b>x"
    run.samples.filter(role="victim").update(client=bad, error=bad)
    text = page(viewer_client, "run", run.pk)
    assert bad not in text
    assert escape(bad) in text


# -- samples


def test_samples_come_by_the_page_and_by_what_is_asked_for(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=8)
    first = page(viewer_client, "run-samples", run.pk)
    assert "1 to 100 of 176" in first
    assert first.count("<tr>") == 101
    assert "101 to 176 of 176" in page(viewer_client, "run-samples", run.pk, page=2)
    only = page(viewer_client, "run-samples", run.pk, stream="attacker", arm="B")
    assert "1 to 24 of 24, of 176 in all" in only
    assert "none matches" in page(viewer_client, "run-samples", run.pk, pair="x")
    assert "<details open><summary>Open as a table" in page(viewer_client, "run", run.pk, page=2)


def test_the_dispatch_delay_stands_in_the_samples(viewer_client: Client, server: Server) -> None:
    told = words_of(page(viewer_client, "run-samples", sample_loads.make_load_run(server, pairs=1).pk, stream="victim", arm="A"))
    assert re.search(r"1 A victim victim 1 ok \d+\.\d{3} 0\.4 ", told)
    assert "after another" in told


# -- compare


def test_two_runs_stand_beside_each_other_with_what_differs(viewer_client: Client, server: Server) -> None:
    first = sample_loads.make_load_run(server, pairs=5)
    second = sample_loads.make_load_run(server, pairs=6, seed=3)
    text = page(viewer_client, "run-compare", first.pk, **{"with": second.pk})
    told = words_of(text)
    assert f"Run {second.pk} against run {first.pk}" in told
    assert re.search(r"Pairs 5 6 differs", told)
    assert "Not comparable" not in told
    assert "no difference shown" in told
    assert len(figure(text, "fig-0-dist")["data"]) == 4
    assert 'aria-current="true">Arm B' in text


def test_what_cannot_be_compared_is_said_first_and_has_no_verdict(viewer_client: Client, server: Server) -> None:
    first = sample_loads.make_load_run(server, pairs=1)
    second = sample_rows.make_run(server, pairs=1)
    text = page(viewer_client, "run-compare", first.pk, **{"with": second.pk})
    assert text.index("Not comparable because the scenario differs") < text.index('id="h-set"')
    assert 'class="verdict"' not in text


@pytest.mark.parametrize(
    ("wanted", "says"),
    [("", "Choose a run"), ("99999", "There is no run 99999"), ("x", "There is no run x"), ("self", "beside itself")],
)
def test_a_choice_that_shows_nothing_says_why(viewer_client: Client, server: Server, wanted: str, says: str) -> None:
    run = sample_loads.make_load_run(server, pairs=0)
    sample_loads.make_load_run(server, pairs=0)
    assert says in page(viewer_client, "run-compare", run.pk, **{"with": str(run.pk) if wanted == "self" else wanted})


def test_a_run_of_a_server_that_one_may_not_see_is_not_there(viewer: User, server: Server) -> None:
    run, secret = (
        sample_loads.make_load_run(server, pairs=0),
        sample_loads.make_load_run(sample_rows.make_server("backstage"), pairs=0),
    )
    group = ServerGroup.objects.create(name="lab")
    group.servers.add(server)
    Membership.objects.filter(user=viewer).update(group=group)
    client = client_of(User.objects.get(pk=viewer.pk))
    text = page(client, "run-compare", run.pk, **{"with": secret.pk})
    assert f"There is no run {secret.pk} that you may see." in text
    assert "backstage" not in text


# -- trend


def test_a_trend_has_a_point_for_each_finished_run_and_leads_to_comparing(viewer_client: Client, server: Server) -> None:
    runs = [sample_loads.make_load_run(server, pairs=1, seed=seed) for seed in (1, 2)]
    sample_loads.make_load_run(server, pairs=1, state="failed", error="x")
    text = page(viewer_client, "run-trend", runs[1].pk)
    assert "victim: TTFT, mean" in text
    assert figure(text, "fig-trend")["layout"]["xaxis"]["ticktext"] == [str(run.pk) for run in runs]
    assert f"{reverse('run-compare', args=[runs[1].pk])}?with={runs[0].pk}" in text
    assert figure(page(viewer_client, "run-trend", runs[1].pk, measure="makespan"), "fig-trend")["data"]


def test_the_scenario_leads_to_its_newest_trend_or_back(viewer_client: Client, server: Server) -> None:
    address = reverse("scenario-trend", args=["victim-and-attacker"])
    assert viewer_client.get(address).headers["Location"] == reverse("scenario", args=["victim-and-attacker"])
    run = sample_loads.make_load_run(server, pairs=1)
    assert viewer_client.get(address).headers["Location"] == reverse("run-trend", args=[run.pk])


# -- badge


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"pairs": 6}, r"victim TTFT mean: faster: \d\.\d times sooner"),
        ({"pairs": 1}, r"victim TTFT mean: not enough runs"),
        ({"pairs": 0, "planned": 4, "state": "failed"}, r"victim-and-attacker: failed"),
        ({"pairs": 0, "planned": 4, "state": "running", "finished_at": None}, r"victim-and-attacker: running"),
    ],
)
def test_a_badge_tells_the_verdict(viewer_client: Client, server: Server, fields: dict[str, Any], says: str) -> None:
    response = viewer_client.get(reverse("run-badge", args=[sample_loads.make_load_run(server, **fields).pk]))
    assert response.headers["Content-Type"] == "image/svg+xml"
    drawn = ET.fromstring(response.content)
    assert re.fullmatch(says, drawn.attrib["aria-label"])


def test_a_stranger_gets_no_badge(client: Client, server: Server) -> None:
    assert client.get(reverse("run-badge", args=[sample_rows.make_run(server, pairs=1).pk])).status_code == 404


def test_a_link_that_shows_a_run_shows_its_badge_and_no_other(client: Client, operator: User, server: Server) -> None:
    run, other = (sample_rows.make_run(server, pairs=1) for _ in range(2))
    link, secret = links.make(operator, run=run, lasts=timedelta(hours=1))
    client.cookies[links.cookie_name(link.pk)] = secret
    assert client.get(reverse("run-badge", args=[run.pk])).status_code == 200
    assert client.get(reverse("run-badge", args=[other.pk])).status_code == 404


# -- import


def send(client: Client, content: bytes | None) -> Any:
    data = {} if content is None else {"file": SimpleUploadedFile("run.json", content, "application/json")}
    return client.post(reverse("run-import"), data)


def test_an_exported_run_comes_back_as_a_page_without_a_server(operator_client: Client, operator: User, server: Server) -> None:
    run = sample_loads.make_load_run(server, operator, pairs=2)
    answer = send(operator_client, as_json(run))
    assert answer.status_code == 302
    back = Run.objects.get(imported__isnull=False)
    assert answer.headers["Location"] == reverse("run", args=[back.pk])
    text = page(operator_client, "run", back.pk)
    assert "studio-1, another console" in text
    assert words_of(text).count("not enough runs") == words_of(page(operator_client, "run", run.pk)).count("not enough runs")
    assert "studio-1, run" in page(operator_client, "run-import")
    assert "Not comparable" not in page(operator_client, "run-compare", run.pk, **{"with": back.pk})


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No file was chosen"), (b"{", "not JSON: line 1"), (b"{}", "not an exported run"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_file_that_is_no_run_says_why_and_imports_nothing(operator_client: Client, content: bytes | None, says: str) -> None:
    answer = send(operator_client, content)
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not Run.objects.exists()


def test_a_viewer_imports_nothing(viewer_client: Client) -> None:
    assert viewer_client.get(reverse("run-import")).status_code == 403
    assert send(viewer_client, b"{}").status_code == 403
