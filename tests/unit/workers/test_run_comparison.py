"""Two runs side by side, from their measures' rows."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.compare_page import as_ratios
from workers.analysis.load import BlockLoad, compare
from workers.analysis.runs import Setting, Side, compared, differing, reasons, trend_rows
from workers.measure_rows import measure_row

JITTER = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0)
SCALE = Setting("scale", "Scale", "1", 1.0, "the scale")
BUILD = Setting("build", "Build", "b1", "b1", "the server's build")
THREADS = Setting("n_threads", "Threads", "2", 2)


def rows(a: float, b: float, n: int = 6) -> list[dict[str, Any]]:
    pairs = [
        (BlockLoad({("chat", "ttft_mean"): a * factor}, {}), BlockLoad({("chat", "ttft_mean"): b * factor}, {}))
        for factor in JITTER[:n]
    ]
    return [measure_row(measure) for measure in compare(pairs)]


def side(run: int, measures: list[dict[str, Any]], *settings: Setting) -> Side:
    return Side(run, settings, measures)


def test_each_arm_is_compared_with_the_same_arm_and_the_effects_stand_beside() -> None:
    (row,) = compared(side(1, rows(2.0, 1.0)), side(2, rows(2.0, 0.5)), seed=1)
    assert row["arms"]["A"]["word"] == "no difference shown"
    assert row["arms"]["B"]["word"] == "faster"
    assert row["arms"]["B"]["change"] == pytest.approx(-0.5)
    assert row["arms"]["B"]["mean"] > 0
    assert row["arms"]["B"]["difference"]["method"] == "unpaired"
    assert row["arms"]["B"]["difference"]["high"] < 0
    assert row["effect"]["first"]["ratio"]["median"] == pytest.approx(0.5)
    assert row["effect"]["second"]["ratio"]["median"] == pytest.approx(0.25)


def test_few_blocks_and_other_measures() -> None:
    (row,) = compared(side(1, rows(2.0, 1.0, n=4)), side(2, rows(2.0, 0.5)), seed=1)
    assert row["arms"]["B"]["word"] == "not enough runs"
    assert compared(side(1, rows(2.0, 1.0)), side(2, []), seed=1) == []


def test_what_forbids_a_comparison_is_named_and_what_does_not_is_marked() -> None:
    first = side(7, rows(2.0, 1.0), SCALE, BUILD, THREADS)
    second = side(
        9,
        rows(2.0, 0.5),
        SCALE,
        Setting("build", "Build", "b2", "b2", "the server's build"),
        Setting("n_threads", "Threads", "4", 4),
    )
    assert reasons(first, second) == ["Not comparable because the server's build differs: b1 in run 7, b2 in run 9."]
    assert [row["key"] for row in differing(first, second) if row["differs"]] == ["build", "n_threads"]
    assert compared(first, second, seed=1)[0]["arms"]["B"]["word"] == "not comparable"


def test_near_scales_are_one_and_what_one_side_does_not_know_forbids_nothing() -> None:
    near = Setting("scale", "Scale", "1.04", 1.04, "the scale")
    assert reasons(side(1, [], SCALE), side(2, [], near)) == []
    assert len(reasons(side(1, [], SCALE), side(2, [], Setting("scale", "Scale", "1.1", 1.1, "the scale")))) == 1
    (row,) = differing(side(1, [], BUILD), side(2, []))
    assert (row["second"], row["differs"], row["forbids"]) == ("unknown", True, False)


def test_a_trend_has_a_point_for_each_run_that_has_the_measure() -> None:
    said = [{"run": number, "at": number} for number in (1, 2, 3)]
    (line,) = trend_rows([(said[0], rows(2.0, 1.0)), (said[1], []), (said[2], rows(2.0, 0.5))])
    assert [(point["run"], round(point["ratio"]["median"], 3)) for point in line["points"]] == [(1, 0.5), (3, 0.25)]
    assert line["points"][1]["word"] == "faster"
    assert trend_rows([]) == []


def test_two_that_came_out_alike_have_their_interval_all_the_same() -> None:
    found = compared(side(1, rows(2.0, 1.0)), side(2, rows(2.0, 1.0)), seed=1)
    (row,) = as_ratios(found, "A")
    assert found[0]["arms"]["A"]["change"] == 0
    assert row["ratio"]["median"] == 1
    assert row["ratio"]["low"] < 1 < row["ratio"]["high"]
