"""A unified KV cache that fills up on the real engine: one task gives way, the others go on as if nothing had been."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_small_model

pytestmark = pytest.mark.model

OLD, YOUNG = list(range(300, 500)), list(range(600, 800))
POOL = 512


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    model = write_small_model(tmp_path_factory.mktemp("models") / "small.gguf")
    with running_engine("-m", str(model), "-np", "3", "-c", str(POOL), "--kv-unified", "-b", "64") as engine:
        yield engine


def body(prompt: list[int], n: int, slot: int) -> dict[str, Any]:
    wish = {"prompt": prompt, "n_predict": n, "id_slot": slot, "return_tokens": True, "ignore_eos": True}
    return {**wish, "temperature": 0, "cache_prompt": False}


def alone(engine: EngineProcess, prompt: list[int], n: int) -> list[int]:
    found: list[int] = engine.complete(**body(prompt, n, 0))["tokens"]
    return found


def behind(engine: EngineProcess, old: dict[str, Any], young: dict[str, Any]) -> tuple[list[int], Any]:
    """The tokens of the old one, which generates when the young one comes; the answer to that."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(engine.client.post("/completion", json=young)))
    with engine.stream(**old) as events:
        tokens: list[int] = next(event for event in events if event["content"])["tokens"]
        thread.start()
        tokens += [token for event in events for token in event["tokens"]]
    thread.join(60)
    return tokens, answers[0]


def test_the_youngest_of_those_who_generate_ends_with_an_error(engine: EngineProcess) -> None:
    wanted = alone(engine, OLD, 300)
    tokens, answer = behind(engine, body(OLD, 300, 0), body(YOUNG, 300, 1))
    assert tokens == wanted
    assert answer.status_code == 500
    assert answer.json()["error"] == {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
    assert alone(engine, YOUNG, 20) == alone(engine, YOUNG, 20)


def test_a_prompt_that_finds_no_room_is_parked_until_there_is(engine: EngineProcess) -> None:
    long = [*YOUNG, *OLD]
    wanted = alone(engine, OLD, 300), alone(engine, long, 20)
    before = engine.get("/scheduler")["iteration"]
    tokens, answer = behind(engine, body(OLD, 300, 0), body(long, 20, 1))
    assert (tokens, answer.json()["tokens"]) == wanted
    iterations = engine.get(f"/scheduler/iterations?after={before}")["iterations"]
    reasons = {reason for iteration in iterations for _, reason in iteration["skipped"]}
    assert "parked until the KV cache has room for its 400 tokens" in reasons


def test_idle_slots_give_up_what_they_hold(engine: EngineProcess) -> None:
    for slot in range(3):
        engine.complete(**{**body(OLD[: 160 + slot], 1, slot), "cache_prompt": True})
    assert engine.complete(**body(YOUNG, 250, 1))["tokens_predicted"] == 250
