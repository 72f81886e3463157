"""What a llama-server's answers come to: tokens missed between looks, sleep, and metrics that count as use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler_api.kinds.engine_state import NO_SLOT
from scheduler_api.kinds.llama_ledger import Ledger
from scheduler_api.kinds.llama_state import KEPT_AWAKE_BY_METRICS, METRICS_OFF, SLOTS_OFF, IsRouter, LlamaReader
from scheduler_api.kinds.polling import NotServing
from scheduler_api.wire import Answer
from tests.support.stub_servers import IDLE_SLOT, LOADING, busy_slot


def counters(prompt: int, generated: int, processing: int = 0, start: str = "1000", decodes: int = 0) -> Answer:
    text = f"llamacpp:prompt_tokens_total {prompt}\nllamacpp:tokens_predicted_total {generated}\n"
    text += f"llamacpp:requests_processing {processing}\nllamacpp:requests_deferred 0\nllamacpp:n_decode_total {decodes}\n"
    return Answer(200, text.encode(), {"process-start-time-unix": start})


def slots(*raws: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(raws).encode())


def props(**told: Any) -> Answer:
    return Answer(200, json.dumps({"build_info": "b11549-abc", "is_sleeping": False} | told).encode())


def reader(**more: Any) -> LlamaReader:
    return LlamaReader(key_given=False, quiet=False, **more)


def tokens(it: LlamaReader, now: float) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for service in it.reading(now).services:
        prompt, generated = found.get(service.slot, (0, 0))
        found[service.slot] = (prompt + service.prompt, generated + service.generated)
    return found


def test_a_task_that_came_and_went_between_two_looks_counts_by_the_counters() -> None:
    it = reader()
    it.metrics(counters(0, 0), 1.0)
    it.slots(slots(IDLE_SLOT), 1.0)
    it.metrics(counters(300, 100), 2.0)
    assert it.expects_work
    it.slots(slots(IDLE_SLOT | {"id_task": 2, "n_prompt_tokens_processed": 0}), 2.2)
    assert tokens(it, 2.2) == {NO_SLOT: (300, 100)}
    assert not it.expects_work


def test_a_task_that_was_watched_is_not_counted_twice() -> None:
    """While it runs, its slot is ahead of the counters; they catch up when it ends, and only its last tokens were missed."""
    it = reader()
    it.metrics(counters(0, 0), 0.0)
    it.slots(slots(IDLE_SLOT), 0.0)
    it.metrics(counters(0, 0, processing=1), 1.0)
    it.slots(slots(busy_slot(0, 7, n_decoded=40)), 1.0)
    assert tokens(it, 1.0) == {0: (800, 40)}
    it.metrics(counters(800, 0, processing=1), 2.0)
    it.slots(slots(busy_slot(0, 7, n_decoded=90)), 2.0)
    assert tokens(it, 2.0) == {0: (0, 50)}
    it.metrics(counters(800, 100), 3.0)
    it.slots(slots(IDLE_SLOT | {"id_task": 7, "n_prompt_tokens_processed": 0}), 3.0)
    assert tokens(it, 3.0) == {NO_SLOT: (0, 10)}


def test_what_a_task_had_done_before_it_was_first_seen_is_not_told_as_of_now() -> None:
    it = reader()
    it.metrics(counters(0, 0, processing=1), 1.0)
    it.slots(slots(busy_slot(0, 7, n_decoded=500)), 1.0)
    it.metrics(counters(800, 500), 2.0)
    it.slots(slots(IDLE_SLOT | {"id_task": 7, "n_prompt_tokens_processed": 0}), 2.0)
    assert tokens(it, 2.0) == {}


def test_a_cancelled_prompt_hides_no_later_tokens() -> None:
    ledger = Ledger()
    ledger.shown(5000, 0)  # cancelled: the counters never tell of it
    assert ledger.settle(idle=True) == (0, 0)
    ledger.counted(300, 10)
    assert ledger.settle(idle=False) == (300, 10)


def test_case_16_a_restart_between_two_looks_is_a_gap() -> None:
    it = reader()
    it.metrics(counters(9000, 900), 1.0)
    it.slots(slots(busy_slot(0, 70)), 1.0)
    it.reading(1.0)
    it.metrics(counters(12, 1, start="2000"), 2.0)
    it.slots(slots(busy_slot(0, 3)), 2.0)
    reading = it.reading(2.0)
    assert (reading.services, reading.restarted) == ([], True)


def test_case_18_batches_are_progress() -> None:
    it = reader()
    it.metrics(counters(5, 5, processing=1, decodes=4), 1.0)
    assert it.reading(1.0).progressed is False
    it.metrics(counters(5, 5, processing=1, decodes=5), 2.0)
    assert it.reading(2.0).progressed is True
    it.metrics(counters(5, 5, processing=1, decodes=5), 3.0)
    assert it.reading(3.0).progressed is False


@pytest.mark.parametrize(("build", "free"), [("b11549-abc", True), ("b9760-6ee0f65", False), ("b0-unknown", None), ("", None)])
def test_case_5_whether_metrics_count_as_use_is_told_by_the_build(build: str, free: bool | None) -> None:
    it = reader()
    it.props(props(build_info=build), 1.0)
    assert it.metrics_free is free
    it.metrics(counters(0, 0), 2.0)
    assert (it.reading(2.0).parts["missing"].get("sleep") == KEPT_AWAKE_BY_METRICS) is (free is False)
    it.quiet = True
    assert (it.metrics_factor == 1.0) is bool(free)
    it.metrics(counters(5, 5, processing=1), 3.0)
    assert it.metrics_factor == 1.0  # it is awake and at work


@pytest.mark.parametrize(("since", "free"), [(1.0, True), (30.0, None)])
def test_case_5_a_server_that_fell_asleep_while_asked_shows_that_metrics_are_no_use(since: float, free: bool | None) -> None:
    it = reader()
    it.props(props(build_info="b0-unknown"), 1.0)
    it.metrics(counters(0, 0), 100.0)
    it.props(props(build_info="b0-unknown", is_sleeping=True), 100.0 + since)
    assert (it.metrics_free, it.asleep, it.quiet) == (free, True, True)
    it.props(props(build_info="b0-unknown"), 200.0)
    assert it.woke


def test_cases_1_and_2_what_an_older_build_has_off_stays_known_until_it_is_met_anew() -> None:
    """Its /props does not tell of endpoints, and is asked again and again."""
    it = reader()
    off = Answer(501, b"{}")
    it.props(props(), 1.0)
    it.slots(off, 1.0)
    it.metrics(off, 1.0)
    it.props(props(), 2.0)
    missing = it.reading(2.0).parts["missing"]
    assert (missing["slots"], missing["queue"]) == (SLOTS_OFF, METRICS_OFF)
    it.props(props(endpoint_metrics=True), 3.0)
    assert (it.wants_slots, it.wants_metrics) == (False, True)
    it.begin()
    it.props(props(), 4.0)
    assert it.wants_slots


def test_case_4_a_router_is_told_by_its_role() -> None:
    with pytest.raises(IsRouter):
        reader().props(props(role="router"), 1.0)


def test_case_16_loading_is_not_down() -> None:
    it = reader()
    with pytest.raises(NotServing) as stop:
        it.slots(Answer(503, json.dumps(LOADING).encode()), 1.0)
    assert (stop.value.condition.state, it.loading_seen) == ("loading", True)
