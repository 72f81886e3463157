"""The phase barrier over HTTP on the real engine: what a client and GET /slots can see of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

Event = dict[str, Any]


@pytest.fixture(scope="module")
def two_slots() -> Iterator[EngineProcess]:
    with running_engine("-np", "2", "-c", "4096", "-b", "32", "--phase", "barrier") as engine:
        yield engine


def is_first_token(event: Event) -> bool:
    return not event["stop"] and bool(event["tokens"]) and "prompt_progress" not in event


def is_complete(event: Event) -> bool:
    progress = event.get("prompt_progress")
    return progress is not None and progress["processed"] >= progress["total"]


class Drain(threading.Thread):
    """Reads a stream to its end and stamps each event with monotonic seconds."""

    def __init__(self, events: Iterator[Event]) -> None:
        super().__init__(daemon=True)
        self._events = events
        self.seen: list[tuple[float, Event]] = []
        self.start()

    def run(self) -> None:
        for event in self._events:
            self.seen.append((time.monotonic(), event))

    def time_of(self, wanted: Any) -> float:
        self.join(30)
        return next(at for at, event in self.seen if wanted(event))


def test_generation_waits_for_every_prompt(two_slots: EngineProcess) -> None:
    prompts = ["two words", "a phrase of exactly six words " * 40]
    complete: set[int] = set()
    at_first_token: set[int] | None = None
    with two_slots.stream(prompt=prompts, n_predict=2, return_progress=True) as events:
        for event in events:
            if is_complete(event):
                complete.add(event["index"])
            if at_first_token is None and is_first_token(event):
                at_first_token = set(complete)
    assert at_first_token == {0, 1}


def test_parent_and_children_generate_together() -> None:
    with running_engine("-np", "3", "-c", "3072", "-b", "32", "--phase", "barrier") as engine:
        complete: set[int] = set()
        with_tokens: set[int] = set()
        stopped: set[int] = set()
        at_first_token: set[int] | None = None
        with engine.stream(prompt="some words to share " * 12, n_cmpl=3, n_predict=2, return_progress=True) as events:
            for event in events:
                index = event["index"]
                if is_complete(event):
                    complete.add(index)
                if is_first_token(event):
                    at_first_token = set(complete) if at_first_token is None else at_first_token
                    with_tokens.add(index)
                if event["stop"]:
                    stopped.add(index)
    assert at_first_token == with_tokens == stopped == {0, 1, 2}


def test_open_cohort_admits_an_early_arrival() -> None:
    with running_engine("-np", "2", "-c", "4096", "-b", "4", "--phase", "barrier") as engine:
        long = "three word phrase " * 60
        with engine.stream(prompt=long, id_slot=0, n_predict=1, return_progress=True) as first:
            for event in first:
                progress = event["prompt_progress"]
                if 0 < progress["processed"] < progress["total"]:
                    break
            drained = Drain(first)
            with engine.stream(prompt="a b c d e f", id_slot=1, n_predict=1, return_progress=True) as second:
                arrived = next(event for event in second if is_complete(event))
                arrived_at = time.monotonic()
                slots = engine.get("/slots")
                assert arrived["prompt_progress"]["total"] < progress["total"]
                assert slots[0]["is_processing"]
                assert slots[0]["n_prompt_tokens_processed"] < progress["total"]
                for _ in second:
                    pass
            assert arrived_at < drained.time_of(is_first_token)


def test_late_arrival_waits_for_the_whole_generation(two_slots: EngineProcess) -> None:
    answers: list[dict[str, Any]] = []
    with two_slots.stream(prompt="go on", id_slot=0, n_predict=1024, ignore_eos=True) as running:
        assert is_first_token(next(running))
        drained = Drain(running)
        late = threading.Thread(
            target=lambda: answers.append(
                two_slots.complete(prompt="eight words of a phrase that came late " * 20, id_slot=1, n_predict=1)
            )
        )
        late.start()

        def both_busy(slots: list[dict[str, Any]]) -> bool:
            return all(slot["is_processing"] for slot in slots) and 0 < slots[0]["next_token"][0]["n_decoded"] < 1024

        slots = two_slots.wait_until(both_busy)
        assert slots[1]["n_prompt_tokens_processed"] == 0
        scheduler = two_slots.get("/scheduler")
        assert scheduler["phase"]["name"] == "tg"
        assert scheduler["slots"][1]["waiting_for"]
        drained.join(30)
        late.join(30)
    assert answers[0]["stop_type"] == "limit"
    assert answers[0]["timings"]["wait_ms"] > 0


def test_cancellation_frees_a_child_that_waits(two_slots: EngineProcess) -> None:
    with two_slots.stream(prompt="a prompt to leave " * 60, n_cmpl=2, n_predict=16, return_progress=True) as events:
        assert "prompt_progress" in next(events)
    two_slots.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))
    assert two_slots.complete(prompt="still here", n_predict=1)["tokens_predicted"] == 1
