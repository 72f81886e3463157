"""Rollups: what a row says, how rows add up, and what the database keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler_api.history import histogram, rollups, store
from scheduler_api.history.rollups import Minute
from scheduler_api.history.tally import Roster, Tally, Tracker
from scheduler_api.models import PolicyChange, Rollup, Server
from tests.support.stub_servers import iteration
from tests.support.tasks import ended

DAY = 24 * 3600
NOW = 1_764_547_200.0  # a multiple of ten minutes


def minute(t: float, seed: int = 1, **more: Any) -> Minute:
    """A made-up minute of two slots."""
    source = random.Random(seed)
    tally, tracker = Tally(), Tracker()
    tasks = [
        ended(
            n,
            i=n * 5,
            slot=n % 2,
            client=f"c{n % 3}",
            reason="limit" if n % 4 else "cancelled",
            n_cached=25,
            submitted_at=t + n,
            first_token_at=t + n + source.random() * 3,
            finished_at=t + n + 4,
        )
        for n in range(1, 9)
    ]
    roster = Roster(tasks, [])
    for i in range(40):
        tracker.follow(tally, iteration(i, t + i, prompt=[[0, 50]], gen=[[1, 1]], ms=source.randint(10, 900)), roster)
    for task in tasks:
        tally.ended(task)
    made = Minute(t, tally, observed_s=60.0, busy_s=90.0, queue_s=30.0, queue_seen_s=60.0, queue_max=2, kv_used_max=1000)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_row_says_what_happened_in_the_minute() -> None:
    row = minute(NOW).row()
    assert (row["t"], row["prompt_tokens"], row["generated_tokens"], row["iterations"]) == (NOW, 2000, 40, 40)
    assert (row["asked_tokens"], row["cached_tokens"]) == (800, 200)
    assert (row["tasks"], row["queue_mean"], row["queue_max"]) == ({"limit": 6, "cancelled": 2}, 0.5, 2)
    assert (row["slots"], sum(row["ttft"].values())) == ({"0": [2000, 0], "1": [0, 40]}, 8)
    assert row["worst_stall_s"] > 0


def test_a_point_has_rates_over_the_time_observed() -> None:
    point = rollups.point(minute(NOW, observed_s=20.0).row(), 60)
    assert (point["prompt_tps"], point["gen_tps"], point["busy"], point["cache_hit"]) == (100.0, 2.0, 4.5, 0.25)
    assert (point["tasks"], point["ttft"]["n"], point["jain_slots"]) == (
        8,
        8,
        pytest.approx(2040**2 / (2 * (2000**2 + 40**2)), abs=1e-4),
    )
    nothing = rollups.point(Minute(NOW).row(), 60)
    assert {
        nothing[name] for name in ("prompt_tps", "busy", "queue_mean", "queue_max", "kv_used_max", "cache_hit", "jain_slots")
    } == {None}


def test_rows_that_are_added_one_by_one_or_all_at_once_are_the_same() -> None:
    rows = [minute(NOW + 60 * n, seed=n).row() for n in range(6)]
    at_once = rollups.added(rows, int(NOW))
    step_by_step = rows[0]
    for row in rows[1:]:
        step_by_step = rollups.added([step_by_step, row], int(NOW))
    assert {**step_by_step, "queue_mean": None} == {**at_once, "queue_mean": None}
    assert step_by_step["queue_mean"] == pytest.approx(at_once["queue_mean"], abs=1e-3)
    assert (at_once["prompt_tokens"], at_once["observed_s"], at_once["queue_max"]) == (12_000, 360.0, 2)
    assert at_once["worst_stall_s"] == max(row["worst_stall_s"] for row in rows)


def test_percentiles_of_added_rows_are_those_of_all_values() -> None:
    source = random.Random(4)
    values = [source.lognormvariate(0, 1) for _ in range(2000)]
    rows = []
    for part in range(10):
        made = Minute(NOW + part * 60)
        for value in values[part::10]:
            histogram.count(made.tally.ttft, value)
        rows.append(made.row())
    point = rollups.point(rollups.added(rows, int(NOW)), 600)
    ordered = sorted(values)
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert point["ttft"][name] == pytest.approx(ordered[round(q * 1999)], rel=0.03)


def test_counts_of_other_bins_are_left_out() -> None:
    old = {**minute(NOW).row(), "bounds": histogram.VERSION + 1}
    assert rollups.added([old, minute(NOW).row()], int(NOW))["ttft"] == minute(NOW).row()["ttft"]
    assert rollups.point(old, 60)["ttft"]["n"] == 0


def test_of_many_clients_the_top_are_kept_and_the_rest_is_one() -> None:
    made = Minute(NOW)
    for n in range(30):
        made.tally.served(0, 100 - n, 0, f"client {n:02}")
    row = made.row()
    assert (len(row["clients"]), row["clients"]["client 00"], row["clients"]["others"]) == (
        21,
        100,
        sum(100 - n for n in range(20, 30)),
    )
    assert sum(rollups.added([row, row], int(NOW))["clients"].values()) == 2 * sum(row["clients"].values())


@pytest.mark.parametrize(
    ("hours", "wanted", "fine", "step"),
    [
        (1, None, True, 60),
        (1, 600, True, 600),
        (24, None, True, 60),
        (1, None, False, 600),
        (48, None, True, 600),
        (720, None, False, 3600),
        (1, 900, True, 3600),
    ],
)
def test_the_step_is_the_smallest_that_the_range_allows(hours: int, wanted: int | None, fine: bool, step: int) -> None:
    assert rollups.step_for(0.0, hours * 3600.0, wanted, fine) == step


@pytest.fixture
def server(db: None) -> Server:
    return Server.objects.create(name="local", kind="engine", base_url="http://127.0.0.1:9")


def test_a_minute_that_is_kept_already_is_added_to(server: Server) -> None:
    store.write(server.pk, [minute(NOW, observed_s=20.0)], NOW + 30)
    store.write(server.pk, [minute(NOW, observed_s=30.0, restarts=1), minute(NOW + 60)], NOW + 120)
    first, second = Rollup.objects.filter(server=server)
    assert (first.t, first.observed_s, first.prompt_tokens, first.restarts) == (NOW, 50.0, 4000, 1)
    assert (second.t, second.prompt_tokens) == (NOW + 60, 2000)


def test_after_two_days_ten_minutes_are_one_row_and_after_thirty_none(server: Server) -> None:
    start = NOW - 2 * DAY
    store.write(server.pk, [minute(start + 60 * n) for n in range(25)], start + 1500)
    assert Rollup.objects.filter(step_s=60).count() == 25
    store.write(server.pk, [minute(NOW)], NOW + 1200)
    assert [(row.t, row.prompt_tokens, row.observed_s) for row in Rollup.objects.filter(step_s=600)] == [
        (start, 20_000, 600.0),
        (start + 600, 20_000, 600.0),
    ]
    assert [row.t for row in Rollup.objects.filter(step_s=60)] == [*(start + 60 * n for n in range(20, 25)), NOW]
    store.write(server.pk, [minute(NOW + 29 * DAY)], NOW + 28.5 * DAY)
    assert not Rollup.objects.filter(t__lt=NOW - 1.5 * DAY).exists()


def test_late_minutes_are_added_to_a_row_of_ten(server: Server) -> None:
    start = NOW - 2 * DAY - 1200
    store.write(server.pk, [minute(start)], NOW)
    store.write(server.pk, [minute(start + 60)], NOW)
    [row] = Rollup.objects.all()
    assert (row.t, row.step_s, row.prompt_tokens) == (start, 600, 4000)


def test_history_gives_the_points_the_range_allows_with_marks_and_runs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(server.pk, [minute(NOW + 60 * n, restarts=int(n == 3)) for n in range(20)], NOW + 1200)
    other = Server.objects.create(name="other", kind="engine", base_url="http://127.0.0.1:9")
    store.write(other.pk, [minute(NOW)], NOW + 1200)
    PolicyChange.objects.create(server=server, actor_name="mira", old={"prefill_order": "physical"}, outcome="applied",
                                changes={"prefill_order": "rotating"}, version=2)  # fmt: skip
    at = PolicyChange.objects.get().at.timestamp()
    run = {"id": 3, "from": NOW, "to": None, "name": "warm-behind-cold"}
    monkeypatch.setattr(store, "run_sources", [lambda pk, *_: [run] if pk == server.pk else []])
    found = store.read(server.pk, NOW, max(NOW + 1200, at + 1))
    assert [point["t"] for point in found["points"]][-1] <= NOW + 1200
    assert sum(point["prompt_tokens"] for point in found["points"]) == 40_000
    assert ("prefill order: physical to rotating", "mira") in [(mark["text"], mark["by"]) for mark in found["marks"]]
    assert [mark["text"] for mark in found["marks"] if mark["kind"] == "restart"] == ["restarted"]
    assert found["runs"] == [run]
    ten = store.read(server.pk, NOW, NOW + 1200, 600)
    assert (ten["step_s"], [point["observed_s"] for point in ten["points"]]) == (600, [600.0, 600.0])
    assert [point["t"] for point in store.read(server.pk, NOW + 300, NOW + 600)["points"]] == [
        NOW + 300 + 60 * n for n in range(5)
    ]
