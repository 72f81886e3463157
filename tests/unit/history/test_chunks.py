from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.history import chunks
from scheduler_api.history.chunks import Chunk, Merger, decode, encode, end_of
from tests.support.stub_servers import engine_slot, iteration
from tests.support.tasks import ended

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2048)).map(list), max_size=3)
seconds = st.floats(0, 5000).map(lambda ms: round(ms, 3))
one = st.fixed_dictionaries(
    {
        "i": st.integers(0, 10**9),
        "t": st.floats(1.7e9, 1.8e9).map(lambda t: round(t, 4)),
        "plan_ms": seconds | st.none(),
        "run_ms": seconds,
        "settle_ms": seconds,
        "prompt": pairs,
        "gen": pairs,
        "skipped": st.lists(st.tuples(st.integers(0, 5), st.text(max_size=8)).map(list), max_size=2),
        "held": st.lists(st.integers(0, 5), max_size=2),
        "phase": st.sampled_from(["continuous", "pp"]),
        "cohort": st.none() | st.integers(0, 5),
        "sealed": st.booleans(),
        "anchor": st.none() | st.integers(0, 5),
        "cursor": st.none() | st.integers(0, 5),
        "policy": st.integers(0, 5),
        "queue": st.integers(0, 5),
        "error": st.sampled_from(["", "Compute error."]),
    }
)


@given(st.lists(one, max_size=12))
def test_a_chunk_comes_back_as_it_was(iterations: list[dict[str, Any]]) -> None:
    open_ = [chunks.open_task(engine_slot(1, state="prompt", task=5, submitted_at=2.0))]
    marks = [{"t": 1.0, "kind": "policy", "text": "phase: ü to 🙂"}]
    whole = Chunk(1.0, 6.0, iterations, [ended(1)], open_, marks, [[1.0, 2.0, "Down."]], {"phase": "barrier"}, {"n_batch": 512})
    again = decode(encode(whole))
    assert [{**each, "t": pytest.approx(each["t"], abs=1e-6)} for each in again.iterations] == iterations
    again.iterations = whole.iterations
    assert again == whole


@pytest.mark.parametrize("data", [b"", b"nonsense", encode(Chunk(1.0, 2.0, [iteration(1, 1.0)]))[:-4]])
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        decode(data)


def test_an_open_task_began_when_its_slot_was_free() -> None:
    task = chunks.open_task(engine_slot(1, state="waiting", task=5, submitted_at=2.0, client="chat"), {1: 7.5})
    assert (task["slot"], task["client"], task["assigned_at"], task["finished_at"], task["state"]) == (
        1,
        "chat",
        7.5,
        None,
        "waiting",
    )


def test_merged_iterations_keep_every_token_and_the_whole_time() -> None:
    merger = Merger(5, factor=4)
    for each in [iteration(n, n * 0.1, prompt=[[n % 2, 10]], gen=[[3, 1]], ms=100) for n in range(1, 4)]:
        merger.add(each, end_of(each))
    [both] = merger.kept
    assert both == {"i": 1, "i_to": 3, "t": 0.1, "dur_ms": 300.0, "prompt": [[1, 20], [0, 10]], "gen": [[3, 3]], "merged": 3}


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3)), max_size=300), st.integers(4, 40))
def test_a_merger_is_bounded_and_loses_no_token_and_no_time(load: list[tuple[float, int]], most: int) -> None:
    merger, t = Merger(most), 0.0
    for i, (pause, tokens) in enumerate(load):
        t += pause
        merger.add(iteration(i, t, gen=[[i % 3, tokens]], ms=50), t + 0.05)
        t += 0.05
    kept: list[Any] = merger.kept
    assert len(kept) <= most
    assert sum(n for each in kept for _, n in each["gen"]) == sum(tokens for _, tokens in load)
    assert sum(each.get("merged", 1) for each in kept) == len(load)
    if kept:
        assert kept[0]["t"] == pytest.approx(load[0][0])
        assert end_of(kept[-1]) == pytest.approx(t)
    assert all(later["i"] == earlier.get("i_to", earlier["i"]) + 1 for earlier, later in pairwise(kept))


def test_a_merger_leaves_pauses_and_restarts_open_while_it_can() -> None:
    merger = Merger(40)
    for burst in range(4):
        for n in range(50):
            each = iteration(n + 1, burst * 10 + n * 0.01, gen=[[0, 1]], ms=10)
            merger.add(each, end_of(each))
    spans = [(each["t"], end_of(each)) for each in merger.kept]
    assert all(end - start <= 0.6 for start, end in spans)
    assert {int(start // 10) for start, _ in spans} == {0, 1, 2, 3}


def test_a_server_that_only_generates_costs_a_few_bytes_an_iteration() -> None:
    steady = [iteration(n, 1.7e9 + n * 0.001, gen=[[0, 1], [1, 1], [2, 1], [3, 1]], ms=0.9 + n % 7 / 100) for n in range(1000)]
    assert len(encode(Chunk(0.0, 1.0, steady))) / 1000 < 12
    assert len(json.dumps(steady)) / 1000 > 200
