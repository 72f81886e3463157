"""Days of a server as figures, their range in the address, the definitions that names link to, and the runs that lanes show."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.charts import history as charts
from dashboard.definitions import MEASURES, PERCENTILES, definitions, render
from dashboard.views.history import DAY, HOUR, first_of, range_of
from scheduler_api.history import histogram
from scheduler_api.models import Rollup, Server
from tests.support.sample_states import Json
from workers.models import Block, Run, RunState

Show = Callable[[str], Server]
UTC_ZONE = ZoneInfo("UTC")
NOON = datetime(2025, 11, 30, 12, tzinfo=UTC).timestamp()


def point(t: float, **more: Any) -> Json:
    return {"t": t, "observed_s": 60.0, "prompt_tps": 100.0, "queue_max": 2, "queue_mean": 0.5, "worst_stall_s": 1.25} | more


def found(points: list[Json], **more: Any) -> Json:
    return {"points": points, "step_s": 60, "marks": [], "runs": []} | more


def panel(key: str) -> charts.Panel:
    return next(each for each in charts.PANELS if each.key == key)


def figure(key: str, told: Json) -> Json:
    return charts.panel_figure(panel(key), told, NOON, NOON + 600, UTC_ZONE, charts.readouts(told, UTC_ZONE))


def test_a_value_holds_for_its_step_and_a_missing_step_is_a_gap() -> None:
    told = found([point(NOON), point(NOON + 60), point(NOON + 240, prompt_tps=None), point(NOON + 300, prompt_tps=40.0)])
    trace = figure("prompt", told)["data"][0]
    assert trace["x"] == [NOON, NOON + 60, NOON + 60, NOON + 120, None, NOON + 300, NOON + 360]
    assert trace["y"] == [100, 100, 100, 100, None, 40, 40]


def test_a_step_in_which_nobody_watched_is_no_zero() -> None:
    told = found([point(NOON, observed_s=0.0, prompt_tps=0.0), point(NOON + 60)])
    assert figure("prompt", told)["data"][0]["y"] == [100, 100]
    assert charts.readouts(told, UTC_ZONE)[0]["text"] == "30 Nov 12:00 to 12:01: nobody watched"


def test_a_readout_tells_every_figure_with_its_unit_and_what_changed() -> None:
    mark = {"t": NOON + 5, "kind": "policy", "text": "phase: continuous to barrier", "by": "mira"}
    text = charts.readouts(found([point(NOON, itl={"p95": 0.034, "p50": 0.02})], marks=[mark]), UTC_ZONE)[0]["text"]
    assert text.startswith(
        "30 Nov 12:00 to 12:01: prompt tokens 100 tokens/s; queue 2.0 deepest, 0.5 mean tasks; worst stall 1.2 s"
    )
    assert "ITL 34.0 p95, 20.0 p50 ms" in text
    assert text.endswith("phase: continuous to barrier, mira")


def test_runs_are_regions_and_changes_are_lines() -> None:
    told = found(
        [point(NOON)],
        marks=[{"t": NOON + 5, "kind": "policy", "text": "x"}, {"t": NOON + 9, "kind": "restart", "text": "restarted"}],
        runs=[{"id": 3, "from": NOON - 100, "to": None, "name": "warm-behind-cold"}],
    )
    shapes = figure("stall", told)["layout"]["shapes"]
    assert [(shape["type"], shape["x0"], shape["x1"]) for shape in shapes] == [
        ("rect", NOON, NOON + 600),
        ("line", NOON + 5, NOON + 5),
        ("line", NOON + 9, NOON + 9),
    ]
    assert [shape["line"].get("dash") for shape in shapes[1:]] == ["solid", "dot"]


def test_times_are_named_at_round_local_moments_and_days_by_their_date() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start = datetime(2025, 11, 29, 20, 30, tzinfo=zone).timestamp()
    assert [text for _, text in charts.spaced(start, start + 8 * 3600, zone)] == [
        "22:00", "30 Nov", "02:00", "04:00",
    ]  # fmt: skip


def test_times_stay_at_round_moments_when_the_clocks_are_turned() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start = datetime(2025, 10, 25, 18, tzinfo=zone).timestamp()
    named = charts.spaced(start, start + 2 * DAY, zone, 5)
    assert [text for _, text in named] == ["26 Oct", "12:00", "27 Oct", "12:00"]
    assert named[1][0] - named[0][0] == 13 * 3600


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, (NOON - DAY, NOON, DAY)),
        ({"last": "3600"}, (NOON - 3600, NOON, 3600)),
        ({"last": "12345"}, (NOON - DAY, NOON, DAY)),
        ({"last": "x"}, (NOON - DAY, NOON, DAY)),
        ({"from": str(NOON - 500), "to": str(NOON)}, (NOON - 500, NOON, None)),
        ({"from": str(NOON), "to": str(NOON - 500)}, (NOON - DAY, NOON, DAY)),
        ({"from": "nan", "to": "inf"}, (NOON - DAY, NOON, DAY)),
        ({"from": str(NOON - 1), "to": str(NOON + 1)}, (NOON - 60, NOON + 60, None)),
    ],
)
def test_the_address_holds_the_range(query: dict[str, str], wanted: tuple[float, float, int | None]) -> None:
    assert range_of(query, NOON) == wanted


def keep(server: Server, minutes: int) -> None:
    now = int(timezone.now().timestamp()) // 60 * 60
    ttft: dict[int, int] = {}
    histogram.count(ttft, 0.5)
    tokens = {"prompt_tokens": 6000, "generated_tokens": 600, "slots": {"0": [6000, 600]}, "clients": {"chat": 6600}}
    times = {"observed_s": 60, "busy_s": 30, "worst_stall_s": 0.5, "ttft": histogram.dump(ttft), "bounds": histogram.VERSION}
    Rollup.objects.bulk_create(
        Rollup(server=server, t=now - 60 * n, step_s=60, queue_max=1, **tokens, **times) for n in range(1, minutes)
    )


def test_what_was_kept_is_drawn_and_what_is_not_told_is_named(viewer_client: Client, shown: Show) -> None:
    server = shown("busy")
    keep(server, 30)
    text = viewer_client.get(reverse("server-history", args=[server.pk]), {"last": "3600"}).text
    assert 'id="fig-prompt"' in text
    assert "between 100 and 100" in text
    assert "Not told in this time: ITL, KV cells used, most, Cache hits." in text
    assert f"/api/servers/{server.pk}/history?from=" in text


def test_a_server_of_which_nothing_is_kept_says_what_will_appear(viewer_client: Client, shown: Show) -> None:
    text = viewer_client.get(reverse("server-history", args=[shown("idle").pk])).text
    assert "the first figures appear about a minute after an observer has begun to watch" in text
    assert "plotly" not in text


def test_a_server_that_tells_of_no_work_has_no_history_of_zeros(
    viewer_client: Client, shown: Show, states: dict[int, Json]
) -> None:
    server = shown("idle")
    figures = states[server.pk]["figures"] | {"prompt_tps": None, "gen_tps": None}
    states[server.pk] |= {"figures": figures, "missing": {"slots": "The OpenAI-compatible interface does not tell of slots."}}
    text = viewer_client.get(reverse("server-history", args=[server.pk])).text
    assert "it does not tell of its work. The OpenAI-compatible interface does not tell of slots." in text


def test_a_short_recent_range_leads_to_its_full_detail(viewer_client: Client, shown: Show) -> None:
    server = shown("busy")
    now = timezone.now().timestamp()
    page = reverse("server-history", args=[server.pk])
    assert "Full detail of this time" in viewer_client.get(page, {"from": str(now - 300), "to": str(now - 60)}).text
    assert "Full detail of this time" not in viewer_client.get(page, {"last": "86400"}).text


def test_definitions_have_an_anchor_for_every_name_that_links_there() -> None:
    told = definitions()
    anchors = {entry.anchor for entry in told.entries}
    linked = (
        {anchor for _, _, anchor in (*MEASURES, *PERCENTILES)}
        | {each.anchor for each in charts.PANELS}
        | {"service", "busy", "share"}
    )
    assert linked <= anchors
    assert set(re.findall(r'href="#([\w-]+)"', told.html)) <= anchors


def test_definitions_show_markup_of_their_own_and_nobody_elses() -> None:
    told = render(
        "# One\n\nA <script>alert(1)</script> and [a file](../x.py) and [here](#one).\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    )
    assert "<script>" not in told.html
    assert "a file" in told.html
    assert "x.py" not in told.html
    assert '<a href="#one">' in told.html
    assert "<td>1</td>" in told.html


def test_the_server_page_links_its_names_to_definitions(viewer_client: Client, shown: Show) -> None:
    text = viewer_client.get(reverse("server", args=[shown("busy").pk])).text
    for _, name, anchor in MEASURES:
        assert f'{reverse("definitions")}#{anchor}">{name}' in text


def test_lanes_get_the_runs_and_blocks_of_their_time(viewer_client: Client, shown: Show) -> None:
    server = shown("busy")
    start = datetime.fromtimestamp(NOON, UTC)
    run = Run.objects.create(
        scenario="warm-behind-cold", server=server, repetitions=2, seed=1, state=RunState.FINISHED, started_at=start,
        finished_at=start + timedelta(seconds=90), policy_a={"prefill_order": "physical"}, policy_b={"prefill_order": "rotating"},
    )  # fmt: skip
    for index, arm in enumerate("AB", start=1):
        begun = start + timedelta(seconds=30 * index)
        Block.objects.create(run=run, index=index, pair=1, arm=arm, started_at=begun, finished_at=begun + timedelta(seconds=20))
    page = reverse("server-runs", args=[server.pk])
    told = viewer_client.get(page, {"from": str(NOON + 55), "to": str(NOON + 100)}).json()["runs"]
    assert [(each["id"], each["url"]) for each in told] == [(run.pk, reverse("run", args=[run.pk]))]
    assert [(block["text"], block["from"] - NOON) for block in told[0]["blocks"]] == [("2 B: rotating", 60.0)]
    assert viewer_client.get(page, {"from": str(NOON + 200), "to": str(NOON + 300)}).json()["runs"] == []


def test_the_pool_of_unified_kv_is_told_once(viewer_client: Client, shown: Show) -> None:
    text = viewer_client.get(reverse("server", args=[shown("unified").pk])).text
    assert "tokens of the pool" in text
    assert re.search(r"data-pool-words>[\d,]+ of 262,144 tokens, \d+ %<", text)
    assert "data-pool hidden" in viewer_client.get(reverse("server", args=[shown("busy").pk])).text


@pytest.mark.parametrize(
    ("age", "length"), [(None, DAY), (120, HOUR), (2 * HOUR, 6 * HOUR), (20 * HOUR, DAY), (3 * DAY, 7 * DAY), (40 * DAY, DAY)]
)
def test_a_page_without_a_range_begins_with_what_there_is(age: float | None, length: int) -> None:
    assert first_of(None if age is None else NOON - age, NOON) == length
