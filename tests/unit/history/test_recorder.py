"""What the observer remembers is bounded, whatever an engine tells; and what it costs at 1,000 iterations a second."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_api.history.chunks import encode
from scheduler_api.history.detail import KEPT_S, MOST_BYTES
from scheduler_api.history.recorder import MOST_CHUNKS, MOST_MINUTES, Look, Recorder
from scheduler_api.history.rollups import Minute
from tests.support.stub_servers import engine_slot, iteration
from tests.support.tasks import ended

START = 1_764_500_040.0  # a whole minute


def look(t: float, slots: list[dict[str, Any]] | None = None, why: str = "", **more: Any) -> Look:
    given = {"queue": 0, "kv_used": None, "policy": None, "info": {}, "batches": True, **more}
    return Look(t, why, slots or [], **given)


def test_a_chunk_ends_after_five_seconds_or_a_hundred_iterations() -> None:
    recorder = Recorder()
    recorder.update(START, [], [], [], [])
    recorder.look(look(START))
    recorder.look(look(START + 4.9))
    assert recorder.take_chunks() == []
    recorder.look(look(START + 5.0, [engine_slot(0, state="prompt", task=3, submitted_at=START)]))
    [chunk] = recorder.take_chunks()
    assert (chunk.start, chunk.end, [task["task"] for task in chunk.open]) == (START, START + 5.0, [3])
    recorder.update(START + 5.2, [iteration(n, START + 5 + n / 1000) for n in range(100)], [], [], [])
    recorder.look(look(START + 5.25))
    [chunk] = recorder.take_chunks()
    assert (chunk.start, chunk.end, len(chunk.iterations)) == (START + 5.0, START + 5.25, 100)


def test_times_in_which_nothing_was_known_are_gaps_with_their_reason() -> None:
    recorder = Recorder()
    recorder.look(look(START))
    for step in range(1, 9):
        recorder.look(look(START + step * 0.25, why="Down: connection refused." if 2 <= step < 6 else ""))
    recorder.end()
    [chunk] = recorder.take_chunks()
    assert chunk.gaps == [[START + 0.25, START + 1.25, "Down: connection refused."]]


def test_a_minute_adds_up_what_was_seen() -> None:
    recorder = Recorder()
    busy = [engine_slot(0, state="generating", task=1, submitted_at=START), engine_slot(1)]
    recorder.look(look(START, busy))
    for step in range(1, 41):
        recorder.look(look(START + step * 0.5, busy, queue=step // 20, kv_used=step))
    recorder.restart(START + 21)
    recorder.end()
    [minute] = recorder.take_minutes()
    row = minute.row()
    assert (row["t"], row["observed_s"], row["busy_s"], row["restarts"]) == (START, 20.0, 20.0, 1)
    assert (row["queue_max"], row["queue_mean"], row["kv_used_max"]) == (2, pytest.approx((20 * 1 + 1 * 2) * 0.5 / 20), 40)


def test_what_nobody_looked_at_was_not_observed() -> None:
    recorder = Recorder()
    for t in (0.0, 0.25, 30.0, 30.25):
        recorder.look(look(START + t))
    recorder.look(look(START + 30.5, why="Down."))
    recorder.end()
    [minute] = recorder.take_minutes()
    assert minute.observed_s == pytest.approx(0.5)


def test_a_minute_ends_with_the_clock() -> None:
    recorder = Recorder()
    for step in range(0, 130):
        recorder.look(look(START + 30 + step))
    assert [minute.t for minute in recorder.take_minutes()] == [START, START + 60]
    assert recorder.minute is not None
    assert recorder.minute.t == START + 120


def test_minutes_and_chunks_that_cannot_be_written_are_bounded_and_the_newest_stay() -> None:
    recorder = Recorder()
    recorder.put_back([Minute(60.0 * n) for n in range(500)])
    taken = recorder.take_minutes()
    assert (len(taken), taken[-1].t) == (MOST_MINUTES, 60.0 * 499)
    for step in range(200):
        recorder.look(look(START + step * 5))
    assert len(recorder.take_chunks()) == MOST_CHUNKS


def busy_second(second: int, slots: list[dict[str, Any]]) -> Iterator[tuple[float, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Five updates of 200 iterations over all slots, with a task that ended in each."""
    for part in range(5):
        first, t = second * 1000 + part * 200, START + second + part / 5
        told = [iteration(first + n, t + n / 1000, gen=[[slot["id"], 1] for slot in slots], ms=0.9) for n in range(200)]
        task = ended(first + 1, i=first + 1, slot=0, client=f"client {first % 977}", submitted_at=t - 1, finished_at=t)
        yield t + 0.2, told, [task]


def test_case_30_a_thousand_iterations_a_second_stay_within_bounds(record_property: Callable[[str, object], None]) -> None:
    """Three simulated minutes on four slots: what is remembered does not grow after the first, nor does a chunk or an update."""
    slots = [engine_slot(n, state="generating", task=n, submitted_at=START, client=f"c{n}") for n in range(4)]
    recorder, spent, sizes = Recorder(), [], []
    encoded = chunks = iterations = 0
    for second in range(180):
        for t, told, tasks in busy_second(second, slots):
            begin = time.perf_counter()
            recorder.update(t, told, [], tasks, slots)
            recorder.look(look(t, slots))
            spent.append(time.perf_counter() - begin)
        for chunk in recorder.take_chunks():
            encoded += len(encode(chunk))
            chunks += 1
            iterations += len(chunk.iterations)
        recorder.fairness(START + second + 1, batches=True)
        recorder.take_minutes()
        if second % 60 == 59:
            sizes.append(len(pickle.dumps(recorder)))
    milliseconds = sorted(spent)[len(spent) // 2] * 1000
    measured = (
        f"{encoded / iterations:.1f} bytes an iteration, {encoded / chunks:.0f} bytes a chunk of {iterations / chunks:.0f}; "
        f"{milliseconds:.2f} ms an update of 200; {sizes[-1] / 1000:.0f} kB remembered"
    )
    record_property("measured", measured)
    print(measured)
    assert iterations == 180_000
    assert sizes[2] <= sizes[1] * 1.05
    assert sizes[2] < 2_000_000
    assert encoded / iterations * 1000 * KEPT_S < MOST_BYTES  # what is kept of it fits into what it may hold in Valkey
    assert milliseconds < 50  # of the 200 that lie between two updates, on a busy machine


def test_clients_without_number_do_not_grow_it() -> None:
    recorder = Recorder()
    for n in range(5000):
        t = START + n / 500
        task = ended(n + 1, i=n, slot=0, client=f"client {n}", submitted_at=t, finished_at=t + 0.002)
        recorder.update(t, [iteration(n, t, prompt=[[0, 10]], ms=1)], [], [task], [engine_slot(0)])
        recorder.look(look(t))
    it = recorder.fairness(START + 11, batches=True)
    assert it is not None
    assert sum(client["tokens"] for client in it["clients"]) == 50_000
    assert (len(it["clients"]), it["clients"][-1]["client"]) == (13, "others")
    assert len(recorder.tasks) == 3000
    assert all(len(tally.clients) <= 201 for _, tally in recorder.window)
