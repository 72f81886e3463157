"""Records on their way into the database while a load goes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from scheduler_api.models import Server, ServerKind
from workers import records
from workers.load.planned import Planned
from workers.load.reading import Answer, Outcome
from workers.load.runner import Record
from workers.models import Block, Run, Sample
from workers.records import Keeper


@pytest.fixture
def block(db: None) -> Block:
    server = Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:1")
    run = Run.objects.create(scenario="x", server=server, repetitions=1, seed=1)
    return Block.objects.create(run=run, index=1, pair=1, arm="A", started_at=timezone.now())


def record(number: int, outcome: Outcome = Outcome.OK) -> Record:
    answer = Answer(
        100.0 + number, 100.1, 100.2, 100.5 if outcome is Outcome.OK else None, outcome=outcome, chunks=(100.2, 100.4)
    )
    return Record(Planned(number, "one", 0.0, (), 2, number), 99.5, answer)


def places(block: Block) -> list[Any]:
    return list(Sample.objects.filter(block=block).order_by("place").values_list("place", "counted"))


def test_they_are_written_some_at_a_time_and_the_rest_at_the_end(block: Block) -> None:
    keeper = Keeper(block, frozenset({0, 1}))
    for number in range(4):
        keeper.take(record(number))
    keeper.flush(2)
    assert places(block) == [(0, True), (1, True)]
    keeper.flush()
    keeper.flush()
    assert places(block) == [(0, True), (1, True), (2, False), (3, False)]


def test_a_database_that_does_not_take_them_loses_none(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper(block, frozenset())
    keeper.take(record(0))

    def locked(*_: object) -> None:
        raise DatabaseError("locked")

    with monkeypatch.context() as patched:
        patched.setattr(records, "add_records", locked)
        with pytest.raises(DatabaseError):
            keeper.flush()
    keeper.flush()
    assert places(block) == [(0, False)]


def test_of_a_large_load_every_so_manieth_is_kept_by_its_number(block: Block) -> None:
    keeper = Keeper(block, frozenset(range(9)), every=4)
    for number in (8, 3, 0, 5, 4, 1):
        keeper.take(record(number))
    keeper.flush()
    assert [place for place, _ in places(block)] == [0, 4, 8]


def test_a_shards_records_come_onto_the_runs_clock_with_their_durations_unchanged(block: Block) -> None:
    keeper = Keeper(block, frozenset({0, 1}), shift_s=-900.0)
    keeper.take(record(0))
    keeper.take(record(1, Outcome.TIMEOUT))
    keeper.flush()
    first, second = Sample.objects.filter(block=block).order_by("place")
    moments = [first.scheduled_at, first.sent_at, first.first_token_at, first.done_at]
    assert moments == pytest.approx([-800.5, -800.0, -799.8, -799.5])
    assert [first.wall_s, first.ttft_s] == pytest.approx([0.5, 0.2])
    assert first.chunks_ms == pytest.approx([200.0, 400.0])
    assert (second.sent_at, second.done_at, second.headers_at) == (-799.0, None, None)
