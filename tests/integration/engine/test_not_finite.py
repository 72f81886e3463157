"""A served model that computes no number for one token: who asks for it gets an error, everybody else an answer."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.backends.test_not_finite import BAD, BROKEN, GOOD, write_broken_model
from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

MESSAGE = "the model's output for this task is not a number: its weights, or its cells in the KV cache, hold NaN or infinity"
LONG = {"prompt": GOOD, "n_predict": 60, "ignore_eos": True, "cache_prompt": False}
WISHES: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8},
    {"temperature": 0, "grammar": "root ::= [a-z ]+"},
    {"temperature": 0.8, "json_schema": {"type": "object"}},
    {"temperature": 0, "n_probs": 5},
    {"mirostat": 2},
    {"temperature": 0.8, "n_cmpl": 2},
)


def fails(engine: EngineProcess, wish: dict[str, Any], prompt: list[int]) -> None:
    answer = engine.client.post("/completion", json={"prompt": prompt, "n_predict": 20, **wish})
    assert answer.status_code == 500, answer.text
    assert answer.json()["error"] == {"code": 500, "message": MESSAGE, "type": "server_error"}
    with engine.stream(**{"prompt": prompt, "n_predict": 20, **wish}) as events:
        assert list(events)[-1]["error"]["message"] == MESSAGE


@pytest.mark.parametrize("kv", ["--no-kv-unified", "--kv-unified"])
def test_only_who_asks_for_it_fails(tmp_path: Path, kv: str) -> None:
    model = write_broken_model(tmp_path / "broken.gguf", math.nan)
    with running_engine("--model", str(model), "-np", "3", "-c", "6144", kv) as engine:
        wanted = engine.complete(**LONG)["content"]
        answers: list[str] = []
        stop = threading.Event()

        def goes_on() -> None:
            while not stop.is_set():
                with engine.stream(**LONG, id_slot=0) as events:
                    answers.append("".join(event["content"] for event in events if "error" not in event))

        beside = threading.Thread(target=goes_on)
        beside.start()
        try:
            for wish in 3 * WISHES:
                fails(engine, wish, BAD)
            forced = {"logit_bias": [[BROKEN, 1000.0]], "temperature": 0}
            fails(engine, forced, GOOD)  # it draws the broken token itself
        finally:
            stop.set()
            beside.join(30)
        assert len(answers) > 2
        assert set(answers) == {wanted}
        engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))
        assert engine.complete(**LONG)["content"] == wanted
        assert engine.output().count("is not a number") >= 2 * len(WISHES)
        assert engine.process.poll() is None
