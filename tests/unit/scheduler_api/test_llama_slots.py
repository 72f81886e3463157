from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.figures import Service
from scheduler_api.kinds.llama_slots import SlotTracker, parse_slot, parse_slots, shape_of
from tests.support.stub_servers import IDLE_SLOT, busy_slot

NEVER_RAN = {"id": 0, "n_ctx": 65536, "speculative": False, "is_processing": False}
OLD_OBJECT = {"id": 1, "is_processing": True, "id_task": 7, "next_token": {"n_decoded": 136, "n_remain": 10}}
OLDEST = {"id": 2, "state": 1, "task_id": 5, "next_token": {"n_decoded": 3}}


@pytest.mark.parametrize(
    ("raw", "processing", "generated", "shape"),
    [
        (NEVER_RAN, False, None, "is_processing"),
        (busy_slot(n_decoded=9), True, 9, "is_processing, next_token as a list, prompt counts"),
        (OLD_OBJECT, True, 136, "is_processing, next_token as an object"),
        (OLDEST, True, 3, "state, next_token as an object"),
        ({"id": 3, "state": 0}, False, None, "state"),
        ({"id": 3, "is_processing": True, "next_token": []}, True, None, "is_processing, next_token as a list"),
    ],
)
def test_case_7_every_shape_is_read(raw: dict[str, Any], processing: bool, generated: int | None, shape: str) -> None:
    slot = parse_slot(raw)
    assert slot is not None
    assert (slot.processing, slot.n_generated, slot.shape) == (processing, generated, shape)


def test_case_9_minus_one_is_none_and_never_an_index() -> None:
    slot = parse_slot(busy_slot(task=-1, params={"n_predict": -1}))
    assert slot is not None
    assert (slot.task, slot.n_predict) == (None, None)
    assert parse_slot({"id": -1, "is_processing": True}) is None


@pytest.mark.parametrize("raw", [None, {}, [None], [3], [{"is_processing": True}], "slots", [{"id": True}]])
def test_what_is_no_slot_is_left_out(raw: Any) -> None:
    assert parse_slots(raw) == []


def test_the_fullest_shape_is_shown() -> None:
    assert shape_of(parse_slots([NEVER_RAN, busy_slot(1)])) == "is_processing, next_token as a list, prompt counts"


def look(tracker: SlotTracker, now: float, *raws: dict[str, Any]) -> tuple[list[str], list[Service]]:
    slots, services = tracker.update(parse_slots(list(raws)), now)
    return [slot["state"] for slot in slots], services


def prompting(processed: int, task: int = 1, slot: int = 0) -> dict[str, Any]:
    return busy_slot(slot, task, n_prompt_tokens_processed=processed, n_prompt_tokens=processed, n_decoded=0)


def test_services_are_the_growth_between_two_polls() -> None:
    tracker = SlotTracker()
    assert look(tracker, 1.0, prompting(512)) == (["prompt"], [])
    assert look(tracker, 1.5, prompting(2048)) == (["prompt"], [Service(0, 1.0, 1.5, 1536, 0)])
    assert look(tracker, 2.0, prompting(2048)) == (["prompt"], [])
    assert look(tracker, 2.5, busy_slot(n_prompt_tokens_processed=2050, n_decoded=4, task=1))[1] == [Service(0, 2.0, 2.5, 2, 4)]


def test_a_new_task_counts_from_nothing() -> None:
    tracker = SlotTracker()
    look(tracker, 1.0, busy_slot(task=1, n_prompt_tokens_processed=900, n_decoded=50))
    assert look(tracker, 2.0, prompting(100, task=2))[1] == [Service(0, 1.0, 2.0, 100, 0)]


def test_prompt_work_that_stands_still_while_another_is_served_waits() -> None:
    tracker = SlotTracker()
    look(tracker, 1.0, prompting(100), prompting(0, task=2, slot=1), prompting(64, task=3, slot=2))
    states, _ = look(tracker, 1.5, prompting(200), prompting(0, task=2, slot=1), prompting(64, task=3, slot=2))
    assert states == ["prompt", "waiting", "waiting"]
    states, _ = look(tracker, 2.0, prompting(200), prompting(10, task=2, slot=1), prompting(64, task=3, slot=2))
    assert states == ["waiting", "prompt", "waiting"]


def test_since_is_when_the_state_was_first_seen() -> None:
    tracker = SlotTracker()
    for now in (1.0, 2.0, 3.0):
        slots, _ = tracker.update(parse_slots([busy_slot(n_decoded=int(now))]), now)
    assert slots[0]["since"] == 1.0
    slots, _ = tracker.update(parse_slots([{**busy_slot(), "is_processing": False}]), 4.0)
    assert (slots[0]["state"], slots[0]["since"], slots[0]["task"], slots[0]["n_generated"]) == ("idle", 4.0, None, None)


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        (busy_slot(task=135), busy_slot(task=3), True),
        (busy_slot(task=135), IDLE_SLOT, True),
        (busy_slot(task=135), {**busy_slot(task=135), "is_processing": False}, False),
        (busy_slot(task=135), busy_slot(task=136), False),
        (IDLE_SLOT, IDLE_SLOT, False),
        (busy_slot(task=135), {**busy_slot(task=-1), "is_processing": False}, False),
    ],
)
def test_case_16_a_restart_shows_in_task_numbers(before: dict[str, Any], after: dict[str, Any], restarted: bool) -> None:
    tracker = SlotTracker()
    look(tracker, 1.0, before)
    assert tracker.has_restarted(parse_slots([after])) is restarted
