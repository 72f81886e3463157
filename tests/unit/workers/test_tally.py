"""Large loads: what the tally says beside what the requests themselves say, and progress added up over shards."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from workers.analysis import load as exact
from workers.analysis.load import Limits, Times
from workers.load import progress, tallied
from workers.load.histogram import ERROR
from workers.load.planned import Planned
from workers.load.progress import Progress
from workers.load.reading import Answer, Outcome
from workers.load.runner import Record
from workers.load.tally import RAW_MOST, Tally, kept_every, times_of

LIMITS = {"chat": Limits(ttft_s=0.25)}


def record(number: int, draws: Random, outcome: Outcome = Outcome.OK) -> Record:
    sent = 100.0 + number * 0.01
    first = sent + draws.lognormvariate(-1.6, 0.5)
    chunks = tuple(first + 0.02 * n * draws.uniform(0.8, 1.2) for n in range(5))
    done = max(chunks) + 0.001
    ended = done if outcome is Outcome.OK else None
    counts: dict[str, Any] = {"n_generated": 5, "n_prompt": 100 + number % 7, "n_cached": number % 5}
    answer = Answer(sent, first, first, ended, outcome=outcome, chunks=chunks, **counts)
    stream = "chat" if number % 3 else "batch"
    client = ("shop", "desk", None)[number % 4 % 3]
    return Record(Planned(number, stream, number * 0.01, (), 5, number, stage=number % 2, client=client), sent - 0.001, answer)


def records(count: int) -> list[Record]:
    draws = Random(5)
    return [record(number, draws, Outcome.TIMEOUT if number % 50 == 7 else Outcome.OK) for number in range(count)]


def tally_of(some: list[Record], shift_s: float = 0.0) -> Tally:
    found = Tally()
    for each in some:
        found.add(each.request, times_of(each, shift_s), LIMITS.get(each.request.stream))
    return found


def test_the_measures_are_those_of_the_requests_within_the_stated_error() -> None:
    rows: list[Times] = [times_of(each) for each in records(900)]
    alone = {"chat": 0.1, "batch": 0.2}
    want, found = exact.block_load(rows, LIMITS, alone), tallied.block_load(tally_of(records(900)), LIMITS, alone)
    assert (found.outcomes, found.counts) == (want.outcomes, want.counts)
    assert found.values.keys() == want.values.keys()
    fair = {("chat", "slowdown"), ("client:desk", "gap"), ("", "jain_streams"), ("", "jain_slowdown"), ("", "oldest_wait")}
    assert {("chat", "ttft_p99"), ("client:shop", "goodput"), ("client:desk", "itl_p95"), *fair} <= want.values.keys()
    for key, value in found.values.items():
        error = ERROR * 1.001 if key[1][-4:] in ("_p50", "_p95", "_p99", "down") else 1e-9
        assert value == pytest.approx(want.values[key], rel=error), key


def test_tallies_of_shards_are_the_tally_of_the_whole_also_through_json() -> None:
    every = records(300)
    whole, first, second = tally_of(every), tally_of(every[::2]), tally_of(every[1::2])
    first = Tally.of_json(json.loads(json.dumps(first.as_json(), allow_nan=False)))
    first.merge(second)
    alone = {"chat": 0.1, "batch": 0.2}
    found, want = tallied.block_load(first, LIMITS, alone).values, tallied.block_load(whole, LIMITS, alone).values
    assert found == pytest.approx(want)
    assert {key for key in want if key[1] in ("gap", "wait", "slowdown", "oldest_wait")}
    assert tallied.stage_rows(first, LIMITS) == tallied.stage_rows(whole, LIMITS)


def test_what_was_kept_before_fairness_was_is_read_without_it() -> None:
    old = tally_of(records(90)).as_json()
    for part in old["parts"]:
        del part["service"], part["ok_ends"], part["client"]
    found = tallied.block_load(Tally.of_json({"parts": old["parts"][:2]}), LIMITS, {"chat": 0.1})
    assert not {name for _, name in found.values} & {"gap", "wait", "jain_streams", "oldest_wait"}
    assert {("chat", "ttft_p50"), ("chat", "slowdown")} <= found.values.keys()
    assert "was not kept" in tallied.bound_sentence([Tally.of_json(old)])
    assert "within 0.5 %" in tallied.bound_sentence([tally_of(records(9))])
    assert tallied.bound_sentence([]) == ""


def test_stages_have_their_counts() -> None:
    rows = [times_of(each) for each in records(400)]
    want = {(row.stream, row.stage): row for row in exact.stage_rows(rows, LIMITS)}
    for row in tallied.stage_rows(tally_of(records(400)), LIMITS):
        other = want[row.stream, row.stage]
        assert (row.requests, row.ok, row.good) == (other.requests, other.ok, other.good)
        assert row.ttft_s == pytest.approx(other.ttft_s, rel=ERROR * 1.001)
        assert row.rate == pytest.approx(other.rate)


def test_a_shift_moves_moments_and_no_duration() -> None:
    here, there = tally_of(records(60)).of(), tally_of(records(60), shift_s=3.0).of()
    assert [there.ends[0] - here.ends[0], there.ends[1] - here.ends[1]] == pytest.approx([3.0, 3.0])
    assert there.times["e2e"].counts == here.times["e2e"].counts


@pytest.mark.parametrize(("requests", "every"), [(1, 1), (RAW_MOST, 1), (RAW_MOST + 1, 2), (10 * RAW_MOST, 10)])
def test_every_request_is_kept_up_to_the_stated_number(requests: int, every: int) -> None:
    assert kept_every(requests) == every


# -- progress ---------------------------------------------------------------------------------------------------------


def followed(some: list[Record]) -> Progress:
    found = Progress(2 * len(some))
    for each in some:
        found.sent(each.request)
        found.first_token(0.5)
        found.ended(each)
    return found


def test_progress_counts_and_has_a_rate_over_the_last_seconds() -> None:
    found = Progress(100)
    assert found.snapshot(10.0) == {
        **{"planned": 100, "sent": 0, "done": 0, "failed": 0, "rate_per_s": 0.0, "at": 10.0},
        **{"ttft_p50_s": None, "ttft_p95_s": None, "ttft": {"counts": [], "sum": 0.0, "min": None, "max": None}},
    }
    for number, each in enumerate(records(20)):
        found.sent(each.request)
        found.ended(each)
        if number % 10 == 9:
            last = found.snapshot(11.0 + number // 10)
    assert (last["sent"], last["done"], last["failed"]) == (20, 20, 1)
    assert last["rate_per_s"] == pytest.approx(10.0)
    assert found.snapshot(30.0)["rate_per_s"] < 2.0  # nothing ended for a long time


def test_the_progress_of_shards_adds_up() -> None:
    first, second = followed(records(30)), followed(records(50))
    whole = progress.merged([first.snapshot(5.0), json.loads(json.dumps(second.snapshot(6.0)))])
    assert (whole["planned"], whole["sent"], whole["done"], whole["failed"], whole["at"]) == (160, 80, 80, 2, 6.0)
    assert whole["ttft_p50_s"] == pytest.approx(0.5, rel=ERROR)
