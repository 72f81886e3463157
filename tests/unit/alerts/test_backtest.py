"""Rules against made-up pasts whose answers can be counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.alerts import backtest, past
from scheduler_api.alerts.backtest import Record, episodes, opened
from scheduler_api.alerts.kinds import Kind, Spec
from tests.support.tasks import ended

type Json = dict[str, Any]


def rule(kind: Kind, threshold_s: float = 30.0, for_s: float = 0.0, clear_s: float = 10.0) -> Spec:
    return Spec(1, kind, None, threshold_s, for_s, clear_s)


def batch(i: int, t: float, *slots: int, s: float = 1.0) -> Json:
    """One that took `s` seconds and gave each slot a token."""
    return {
        "i": i,
        "t": t,
        "plan_ms": 0.0,
        "run_ms": s * 1000,
        "settle_ms": 0.0,
        "prompt": [],
        "gen": [[slot, 1] for slot in slots],
    }


def task(slot: int, client: str, start: float, end: float | None, **more: Any) -> Json:
    times = {"submitted_at": start, "assigned_at": start, "first_visit_at": start, "finished_at": end, "prompt_done_at": None}
    return ended(slot + 1, slot=slot, client=client, **(times | {"first_token_at": None} | more))


class TestEpisodes:
    def test_short_spans_open_nothing_and_short_pauses_close_nothing(self) -> None:
        assert episodes([(0, 3), (100, 120), (125, 126), (140, 160)], for_s=5, clear_s=10) == [(100, 126), (140, 160)]

    def test_none(self) -> None:
        assert episodes([], 0, 10) == []


class TestStarving:
    def test_chat_waits_forty_seconds_while_doc_is_served(self) -> None:
        iterations = [batch(i, float(i), 0) for i in range(40)] + [batch(i, float(i), 0, 1) for i in range(40, 60)]
        record = Record(0, 60, iterations, [task(0, "doc", 0, 60), task(1, "chat", 0, 60)])
        assert opened(rule(Kind.STARVING), record) == [(31.0, 41.0)]
        assert opened(rule(Kind.STARVING, 41.0), record) == []

    def test_nobody_starves_while_nobody_is_served(self) -> None:
        iterations = [batch(1, 0.0, 0, 1), batch(2, 59.0, 0, 1)]
        record = Record(0, 60, iterations, [task(0, "doc", 0, 60), task(1, "chat", 0, 60)])
        assert opened(rule(Kind.STARVING), record) == []

    def test_a_client_served_in_another_slot_does_not_starve(self) -> None:
        iterations = [batch(i, float(i), 0) for i in range(60)]
        record = Record(0, 60, iterations, [task(0, "doc", 0, 60), task(1, "doc", 0, 60)])
        assert opened(rule(Kind.STARVING), record) == []

    def test_a_hold_is_none(self) -> None:
        iterations = [batch(i, float(i), 0) for i in range(60)] + [batch(0, 0.0, 1)]
        iterations.sort(key=lambda each: each["t"])
        held = task(1, "chat", 0, 60, prompt_done_at=1.0, first_token_at=59.0)
        record = Record(0, 60, iterations, [task(0, "doc", 0, 60), held])
        assert opened(rule(Kind.STARVING), record) == []


class TestStuckAndNotServing:
    def test_a_batch_of_three_minutes(self) -> None:
        iterations = [batch(1, 0.0, 0, 1), batch(2, 1.0, 0, 1, s=180.0), batch(3, 181.0, 0, 1)]
        record = Record(0, 182, iterations, [task(0, "doc", 0, 182), task(1, "chat", 0, 182)])
        assert opened(rule(Kind.STUCK_SLOT, 120), record) == [(121.0, 181.0), (121.0, 181.0)]
        assert opened(rule(Kind.NOT_SERVING, 0), record) == [(61.0, 181.0)]
        assert opened(rule(Kind.STUCK_SLOT, 200), record) == []


def test_queue_age_is_the_oldest_ones() -> None:
    waited = [task(0, "a", 50, 110), task(1, "b", 110, 130)]
    waited[0]["submitted_at"], waited[1]["submitted_at"] = 0.0, 10.0
    record = Record(0, 130, [], waited)
    assert opened(rule(Kind.QUEUE_AGE), record) == [(30.0, 110.0)]
    assert opened(rule(Kind.QUEUE_AGE, 120), record) == []


def test_a_hold_over_the_cap_of_its_time() -> None:
    iterations = [batch(1, 0.0, 1), batch(2, 19.0, 1)]
    held = task(1, "chat", 0, 20, prompt_done_at=1.0, first_token_at=20.0)
    record = Record(0, 20, iterations, [held], cap_s=lambda t: 4.0)
    assert opened(rule(Kind.COHORT_HOLD), record) == [(5.0, 20.0)]
    assert opened(rule(Kind.COHORT_HOLD), Record(0, 20, iterations, [held])) == []


def test_gaps_tell_of_servers_and_observers() -> None:
    gaps = [
        [0.0, 50.0, "Down: connection refused."],
        [100.0, 160.0, "no observer watched"],
        [200.0, 700.0, "Busy, no answer for 8 min."],
    ]
    record = Record(0, 900, gaps=gaps)
    assert opened(rule(Kind.DOWN, 300, for_s=10), record) == [(0.0, 50.0), (500.0, 700.0)]
    assert opened(rule(Kind.OBSERVER_LOST, 20), record) == [(120.0, 160.0)]


@pytest.mark.parametrize("kind", [Kind.STARVING, Kind.STUCK_SLOT, Kind.NOT_SERVING, Kind.COHORT_HOLD, Kind.QUEUE_AGE])
def test_a_server_that_tells_of_no_batches_is_not_judged(kind: Kind) -> None:
    assert opened(rule(kind), Record(0, 900, batches=False)) is None


class TestWords:
    def test_how_often_and_for_how_long(self) -> None:
        assert past.would([]) == "It would not have opened"
        assert past.would([(0.0, 32.0)]) == "It would have opened once, for 32 s,"
        spans: list[backtest.Span] = [(0.0, 32.0), (50.0, 60.0), (70.0, 71.0), (90.0, 95.0)]
        assert past.would(spans) == "It would have opened 4 times, longest 32 s,"

    def test_rollups_bound_it(self) -> None:
        rows = [(60 * n, 60, 60.0, 45.0 if n in (3, 4, 9) else 2.0, 0) for n in range(20)]
        told = "At most 3 of 20 steps of 20 min had a stall over 30 s, 2 times apart from each other, the longest 45 s."
        assert past.days(rule(Kind.STARVING), rows) == told
        assert past.days(rule(Kind.STARVING, 60), rows) == "At no time: no stall of 20 min was longer than 60 s."

    def test_rollups_without_ages_say_what_they_have(self) -> None:
        rows = [(60 * n, 60, 60.0, None, n) for n in range(4)]
        assert past.days(rule(Kind.QUEUE_AGE), rows) == "Tasks queued in 3 of 4 steps of 4 min, at most 3 at once."

    def test_time_that_nobody_saw(self) -> None:
        rows = [(0, 60, 60.0, None, None), (60, 60, 50.0, None, None), (240, 60, 60.0, None, None)]
        assert past.days(rule(Kind.DOWN), rows) == "For 2 min of 5 min it was not seen up, 2 min of that at a stretch."
        assert past.days(rule(Kind.DOWN), rows[:1]) == "It was seen up all of 60 s."

    @pytest.mark.parametrize("kind", list(Kind))
    def test_every_kind_says_what_rollups_cannot_tell(self, kind: Kind) -> None:
        assert past.CANNOT[kind]
        assert past.days(rule(kind), [])
