from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.figures import Service
from scheduler_api.kinds.engine_state import NO_SLOT, EngineReader, info_of, iteration_of, services_of, slot_of
from tests.support.stub_servers import FakeEngine, iteration
from tests.support.tasks import ended


def update(
    engine: FakeEngine, *iterations: dict[str, Any], gap: bool = False, prompt: int = 0, generated: int = 0
) -> dict[str, Any]:
    engine.iterations = list(iterations) or engine.iterations
    totals = {"prompt_tokens": prompt, "generated_tokens": generated}
    return {"gap": gap, "state": {**engine.state(), "t": 100.0, "totals": totals}, "iterations": list(iterations)}


def test_a_batch_serves_each_of_its_slots_while_it_runs() -> None:
    assert services_of(iteration(1, 10.0, prompt=[[0, 512], [2, 3]], gen=[[1, 1], [2, 1]], ms=500)) == [
        Service(0, 10.0, 10.5, 512, 0),
        Service(2, 10.0, 10.5, 3, 1),
        Service(1, 10.0, 10.5, 0, 1),
    ]


def test_iterations_seen_before_are_not_told_again() -> None:
    reader, engine = EngineReader(), FakeEngine()
    reader.update(update(engine, iteration(1, 1.0), iteration(2, 2.0)))
    reading = reader.update(update(engine, iteration(2, 2.0), iteration(3, 3.0)))
    assert [each["i"] for each in reading.iterations] == [3]
    assert reader.resume_after(1000) == 3


def test_after_a_gap_the_missed_tokens_count_over_its_time() -> None:
    reader, engine = EngineReader(), FakeEngine()
    reader.update(update(engine, iteration(1, 99.0, gen=[[0, 1]]), prompt=100, generated=1))
    reading = reader.update(update(engine, iteration(9, 104.0, gen=[[0, 1]]), gap=True, prompt=400, generated=8))
    assert reading.services[0] == Service(NO_SLOT, 100.0, 104.0, 300, 6)


def test_another_start_time_is_a_restart_and_forgets_what_was_seen() -> None:
    reader, engine = EngineReader(), FakeEngine()
    assert not reader.snapshot(engine.state()).restarted
    reader.update(update(engine, iteration(50, 1.0)))
    engine.started_at = 2000.0
    reading = reader.update(update(engine, iteration(1, 2.0), gap=True, prompt=5))
    assert reading.restarted
    assert [each["i"] for each in reading.iterations] == [1]
    assert all(service.prompt >= 0 and service.generated >= 0 for service in reading.services)


def test_nonsense_is_read_as_nothing() -> None:
    reading = EngineReader().update({"state": {"slots": [3, {"id": "x"}], "queue": []}, "iterations": [{}, {"i": 1}, None]})
    assert (reading.parts["slots"], reading.iterations, reading.parts["policy"]) == ([], [], None)


def test_the_first_connection_asks_for_a_bounded_past() -> None:
    reader = EngineReader()
    reader.snapshot({**FakeEngine().state(), "iteration": 5000})
    assert reader.resume_after(1000) == 4000


def test_ended_tasks_are_told_once_and_begin_anew_after_a_restart() -> None:
    reader, engine = EngineReader(), FakeEngine()
    first = reader.update(update(engine) | {"tasks": [ended(1), ended(2)]})
    again = reader.update(update(engine) | {"tasks": [ended(2), ended(4), ended(3)]})
    engine.started_at = 2000.0
    fresh = reader.update(update(engine) | {"tasks": [ended(1)]})
    assert [[task["n"] for task in reading.tasks] for reading in (first, again, fresh)] == [[1, 2], [3, 4], [1]]


@pytest.mark.parametrize(
    "raw", [None, 3, {}, {**ended(1), "finished_at": None}, {**ended(1), "slot": "x"}, {**ended(1), "n": -1}]
)
def test_a_task_without_number_slot_or_times_is_none(raw: Any) -> None:
    assert EngineReader().update(update(FakeEngine()) | {"tasks": [raw]}).tasks == []


def test_a_task_is_told_in_the_shape_of_the_protocol_whatever_else_it_carries() -> None:
    [task] = (
        EngineReader()
        .update(update(FakeEngine()) | {"tasks": [ended(1, slot=-1, text="secret", worst_gap_s=float("nan"))]})
        .tasks
    )
    assert task == ended(1, slot=-1)


def test_drafts_are_told_where_there_were_some() -> None:
    batch = {**iteration(1, 10.0, gen=[[0, 4], [1, 1]]), "drafted": [[0, 8, 3], ["x", 1, 1], [2, 3]]}
    found = iteration_of(batch)
    assert found is not None
    assert found["drafted"] == [[0, 8, 3]]
    assert "drafted" not in (iteration_of(iteration(2, 11.0, gen=[[0, 1]])) or {})
    slot = slot_of({"id": 0, "state": "generating", "n_drafted": 8, "n_accepted": 3})
    assert (slot["n_drafted"], slot["n_accepted"]) == (8, 3)
    assert "n_drafted" not in slot_of({"id": 0, "state": "idle", "n_drafted": 0, "n_accepted": 0})
    info = info_of({"totals": {"drafted_tokens": 8, "accepted_tokens": 3}})
    assert (info["drafted"], info["accepted"]) == (8, 3)
    assert "drafted" not in info_of({"totals": {"drafted_tokens": 0}})
