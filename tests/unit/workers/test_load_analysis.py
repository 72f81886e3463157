"""Known answers of what a load shows."""

from __future__ import annotations

from typing import Any

import pytest

from workers.analysis.load import (
    BlockLoad,
    Limits,
    StageRow,
    Times,
    behind_sentence,
    block_load,
    compare,
    saturation,
    stage_rows,
)
from workers.analysis.load_sentences import load_sentence


def times(stream: str = "chat", **fields: Any) -> Times:
    plain: dict[str, Any] = {"outcome": "ok", "sent_at": 0.0, "done_at": 2.0, "ttft_s": 0.5, "e2e_s": 2.0, "n_generated": 4}
    return Times(stream, **{**plain, **fields})


def test_tpot_leaves_the_first_token_out() -> None:
    assert times().tpot_s == pytest.approx(0.5)
    assert times(n_generated=1).tpot_s is None
    assert times(ttft_s=None).tpot_s is None


def test_measures_of_a_block_by_stream_and_as_a_whole() -> None:
    rows = [
        times(gaps=(0.1, 0.4)),
        times(sent_at=1.0, done_at=5.0, e2e_s=4.0, ttft_s=1.5, gaps=(0.2,)),
        times("long", sent_at=0.5, done_at=8.0, e2e_s=7.5, ttft_s=7.0),
        times(outcome="refused", done_at=None, ttft_s=None, e2e_s=None, n_generated=None),
    ]
    found = block_load(rows, {"chat": Limits(ttft_s=1.0)})
    assert found.values["chat", "ttft_p50"] == pytest.approx(1.0)
    assert found.values["chat", "e2e_max"] == 4.0
    assert found.values["chat", "itl_p50"] == pytest.approx(0.2)
    assert found.values["chat", "goodput"] == pytest.approx(1 / 5)
    assert found.values["", "makespan"] == 8.0
    assert found.values["", "throughput"] == pytest.approx(12 / 8)
    assert found.outcomes == {"chat": {"ok": 2, "refused": 1}, "long": {"ok": 1}}
    assert ("long", "itl_p50") not in found.values  # nothing is not zero
    assert ("long", "ttft_max") not in found.values  # of one request there is no largest


def test_percentiles_appear_with_enough_requests() -> None:
    keys = block_load([times(ttft_s=float(n)) for n in range(1, 101)], {}).values
    assert keys["chat", "ttft_p95"] == pytest.approx(95.05)
    assert keys["chat", "ttft_p99"] == pytest.approx(99.01)
    assert ("chat", "ttft_p95") not in block_load([times(ttft_s=float(n)) for n in range(1, 20)], {}).values


@pytest.mark.parametrize(
    ("limits", "row", "met"),
    [
        (Limits(), times(), True),
        (Limits(), times(outcome="cancelled"), False),
        (Limits(ttft_s=0.5), times(), True),
        (Limits(ttft_s=0.4), times(), False),
        (Limits(ttft_s=9), times(ttft_s=None), False),
        (Limits(itl_s=0.3), times(gaps=(0.1, 0.4)), False),
        (Limits(itl_s=0.3), times(gaps=()), True),
        (Limits(tpot_s=0.4), times(), False),
        (Limits(tpot_s=0.4), times(n_generated=1), True),
        (Limits(e2e_s=2.0), times(), True),
    ],
)
def test_a_request_is_good_when_it_meets_all_its_limits(limits: Limits, row: Times, met: bool) -> None:
    assert limits.met(row) is met


def block(**values: float) -> BlockLoad:
    return BlockLoad({("chat", key): value for key, value in values.items()}, {})


def test_arms_are_compared_pair_by_pair_where_both_have_the_measure() -> None:
    pairs = [
        (block(ttft_p50=2.0), block(ttft_p50=1.0)),
        (block(ttft_p50=4.0), block(ttft_p50=1.0)),
        (block(ttft_p50=1.0), block()),
    ]
    (measure,) = compare(pairs)
    assert (measure.key, measure.label) == ("chat.ttft_p50", "chat: TTFT, median")
    assert measure.ratio is not None
    assert measure.ratio.n == 2
    assert measure.ratio.median == pytest.approx(8**-0.5)
    assert compare([]) == []


def test_the_sentence_tells_of_streams_with_limits_first() -> None:
    pairs = [
        (block(ttft_mean=2.0, ttft_max=3.0), BlockLoad({("chat", "ttft_mean"): 1.0, ("chat", "ttft_max"): 3.0}, {}))
        for _ in range(6)
    ]
    text = load_sentence(compare(pairs), ["chat"], "rotating", False)
    assert (
        text
        == "Under rotating: chat: TTFT, mean 2.0 times sooner (2.0 to 2.0), largest no difference shown (0.0 %, 0.0 % to 0.0 %)."
    )
    assert "Not enough runs" in load_sentence(compare(pairs[:2]), ["chat"], "rotating", False)
    assert load_sentence([], [], "rotating", False).startswith("No pair")


def test_levels_and_the_last_that_is_carried() -> None:
    rows = [times(stage=stage, sent_at=0.0, done_at=1.0, ttft_s=ttft) for stage, ttft in ((0, 0.1), (0, 0.2), (1, 0.3), (2, 3.0))]
    levels = stage_rows(rows, {"chat": Limits(ttft_s=1.0)})
    assert [(row.stage, row.requests, row.good, row.rate) for row in levels] == [(0, 2, 2, 2.0), (1, 1, 1, 1.0), (2, 1, 0, 1.0)]
    assert saturation(levels) == levels[1]
    assert saturation([StageRow("chat", 0, 2, 2, 1, 1.0, None, None)]) is None
    assert stage_rows([times()], {}) == []


def test_a_generator_is_behind_when_more_than_a_hundredth_is_late() -> None:
    assert behind_sentence([0.001] * 100) == ""
    assert behind_sentence([]) == ""
    assert "99th percentile of its dispatch delay is 50 ms" in behind_sentence([0.05] * 5)
