from __future__ import annotations

import pytest

from scheduler_api.health import Health, HealthRecord, Standstill, duration, not_serving_after


@pytest.mark.parametrize(
    ("state", "reason", "busy", "text"),
    [
        (Health.UP, "", True, "Serving"),
        (Health.UP, "", False, "Idle"),
        (Health.UP, "", None, "Up"),
        (Health.SLEEPING, "", False, "Asleep"),
        (Health.NOT_SERVING, "", True, "Up but not serving, no token for 1 s"),
        (Health.LOADING, "", None, "Loading the model"),
        (Health.UNAUTHORISED, "Key needed", None, "Key needed"),
        (Health.DOWN, "connection refused", None, "Down: connection refused"),
        (Health.UNKNOWN, "", None, "Not observed yet"),
    ],
)
def test_every_state_has_its_words(state: Health, reason: str, busy: bool | None, text: str) -> None:
    record = HealthRecord()
    record.enter(state, 100.0, reason, seen=False)
    assert record.text(101.0, busy) == text


def test_silence_is_counted_from_the_last_answer() -> None:
    record = HealthRecord()
    record.enter(Health.UP, 100.0, seen=True)
    record.enter(Health.SILENT, 105.0, seen=False)
    assert record.text(142.9, True) == "Busy, no answer for 42 s"
    assert record.as_json(142.9, True)["seen_at"] == 100.0
    assert record.as_json(142.9, True)["since"] == 105.0


def test_since_stays_while_the_state_does() -> None:
    record = HealthRecord()
    record.enter(Health.DOWN, 1.0, "connection refused", seen=False)
    record.enter(Health.DOWN, 9.0, "no connection within 3 s", seen=False)
    assert (record.since, record.reason) == (1.0, "no connection within 3 s")


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (119.9, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h")])
def test_durations_are_told_roughly(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("longest", "after"), [(0, 60), (20, 60), (50, 100), (9000, 600)])
def test_case_18_a_slow_machine_is_given_twice_its_longest_batch(longest: float, after: float) -> None:
    assert not_serving_after(longest) == after


def test_case_18_work_without_a_token_stands_still_and_a_token_ends_it() -> None:
    it = Standstill()
    it.note(0.0, work=False, progressed=False)
    assert not it.lasts(1e6)
    it.note(100.0, work=True, progressed=False)
    it.note(159.0, work=True, progressed=False)
    assert (it.lasts(159.9), it.lasts(160.0)) == (False, True)
    it.note(190.0, work=True, progressed=True)
    assert (it.lasts(369.9), it.lasts(370.0)) == (False, True)  # twice the 90 s that ended by themselves
    it.note(400.0, work=False, progressed=False)
    assert not it.lasts(1e6)
