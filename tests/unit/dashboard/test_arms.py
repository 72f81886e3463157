"""The arms of an experiment: which fields a form offers, and what it sends of them."""

from __future__ import annotations

import pytest

from dashboard import arms
from engine.scheduler.policy import table
from workers.errors import ExperimentRefused

FIELDS = {name: spec.as_dict() for name, spec in table(2048).items()}


def test_every_field_of_the_engine_can_be_set() -> None:
    assert sorted(arms.LABELS) == sorted(FIELDS)
    offered = {choice.field: choice for choice in arms.choices("A", FIELDS, {"a-decode_share": "0.5", "a-prefill_chunk": None})}
    assert list(offered) == list(arms.LABELS)
    assert [text for _, text in offered["barrier_join"].values] == ["as it is now", "first completion", "window"]
    assert (offered["decode_share"].values, offered["decode_share"].chosen) == ((), "0.5")
    assert offered["decode_share"].needs == "of the time, 0.01 to 0.99 or off"
    assert offered["prefill_chunk"].chosen == "off"
    assert offered["barrier_join_window_ms"].needs.endswith("; counts with cohort closes at window")


def test_numbers_are_sent_as_numbers_and_off_as_null() -> None:
    sent = {"b-decode_share": "0.5", "b-prefill_chunk": " 1,024 ", "a-prefill_chunk": "off"}
    assert arms.asked("B", FIELDS, sent) == {"prefill_chunk": 1024, "decode_share": 0.5}
    assert arms.asked("A", FIELDS, sent) == {"prefill_chunk": None}


def test_what_would_not_count_is_left_out() -> None:
    window = {"a-barrier_join": "window", "a-barrier_join_window_ms": "500", "a-barrier_max_hold_ms": "2000"}
    assert arms.asked("A", FIELDS, window) == {}
    whole = arms.asked("A", FIELDS, {**window, "a-phase": "barrier"})
    assert whole == {"phase": "barrier", "barrier_join": "window", "barrier_join_window_ms": 500, "barrier_max_hold_ms": 2000}


@pytest.mark.parametrize(
    ("field", "text"),
    [("decode_share", "1"), ("decode_share", "half"), ("prefill_chunk", "4096"), ("barrier_join_window_ms", "off")],
)
def test_a_number_that_the_field_does_not_allow_refuses_the_run(field: str, text: str) -> None:
    sent = {"a-phase": "barrier", "a-barrier_join": "window", f"a-{field}": text}
    with pytest.raises(ExperimentRefused, match=f"Arm A, {arms.LABELS[field]}: .* it is {text}"):
        arms.asked("A", FIELDS, sent)


def test_the_words_of_an_arm() -> None:
    assert arms.full({"prefill_chunk": None, "decode_share": 0.5}) == "prefill chunk: not set, share of generation: 0.5"
