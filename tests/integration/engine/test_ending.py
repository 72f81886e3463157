"""How the process ends: with running tasks done where it was given time for that, at once where not; and its JSON log."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.support.engine import EngineProcess, running_engine, sse_data

FLAGS = ("--backend", "simulated", "-np", "1", "-c", "65536", "--no-kv-unified")
SECONDS = 66  # generated tokens of the cost model in one second, about
LONG = 6 * SECONDS  # what a test does meanwhile takes a few tenths of a second, on a busy machine some seconds


@contextmanager
def streaming(engine: EngineProcess, n_predict: int) -> Iterator[Iterator[dict[str, Any]]]:
    """A stream that has begun to generate."""
    body = {"prompt": "on", "n_predict": n_predict, "ignore_eos": True, "stream": True}
    with httpx2.Client(base_url=engine.url, timeout=30) as client, client.stream("POST", "/completion", json=body) as answer:
        events = sse_data(answer.iter_lines())
        next(events)
        yield events


def until(true: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def draining(engine: EngineProcess) -> bool:
    return engine.client.get("/health").status_code == 503


def test_running_and_waiting_tasks_end_well_and_new_ones_are_refused() -> None:
    with running_engine(*FLAGS, "--drain-timeout", "30") as engine, streaming(engine, LONG) as events:
        answers: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: answers.append(engine.complete(prompt="two", n_predict=2)))
        waiting.start()
        until(lambda: engine.get("/scheduler")["queue"]["depth"] == 1)
        engine.process.send_signal(signal.SIGTERM)
        until(lambda: draining(engine))
        for stream in (False, True):
            refused = engine.client.post("/completion", json={"prompt": "three", "n_predict": 1, "stream": stream})
            assert refused.status_code == 503
            assert refused.json()["error"]["message"] == "The server is shutting down: it takes no new requests."
        assert engine.client.get("/health").json()["error"]["type"] == "unavailable_error"
        assert engine.get("/slots")[0]["is_processing"]  # who watches still sees it end
        last = list(events)[-1]
        assert last["stop"]
        assert last["tokens_predicted"] == LONG
        waiting.join(10)
        assert answers[0]["tokens_predicted"] == 2
        assert engine.process.wait(5) == 0


def test_what_is_not_done_within_the_limit_ends_with_an_error() -> None:
    with running_engine(*FLAGS, "--drain-timeout", "0.7") as engine, streaming(engine, 60 * SECONDS) as events:
        answers: list[httpx2.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(engine.client.post("/completion", json={"prompt": "two"})))
        waiting.start()
        until(lambda: engine.get("/scheduler")["queue"]["depth"] == 1)
        began = time.monotonic()
        engine.process.send_signal(signal.SIGTERM)
        last = list(events)[-1]
        assert time.monotonic() - began > 0.6
        assert last["error"] == {"code": 503, "message": "The server is shutting down.", "type": "unavailable_error"}
        waiting.join(10)
        assert answers[0].status_code == 503
        assert engine.process.wait(5) == 0
        assert "tasks are ended before they are done" in engine.output()


def test_a_second_signal_ends_it_at_once() -> None:
    with running_engine(*FLAGS, "--drain-timeout", "60") as engine, streaming(engine, 60 * SECONDS) as events:
        engine.process.send_signal(signal.SIGINT)
        until(lambda: draining(engine))
        began = time.monotonic()
        engine.process.send_signal(signal.SIGTERM)
        assert list(events)[-1]["error"]["message"] == "The server is shutting down."
        assert engine.process.wait(10) == 0
        assert time.monotonic() - began < 5


def test_an_idle_server_needs_no_time_to_drain() -> None:
    with running_engine(*FLAGS, "--drain-timeout", "60") as engine:
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(10) == 0


def test_the_json_log_is_one_object_a_line() -> None:
    with running_engine(*FLAGS, "--log-format", "json", "-ngl", "99", "--phase", "barrier") as engine:
        engine.complete(prompt="horse battery staple", n_predict=1)
        engine.set_policy(phase="continuous")
        until(lambda: "Policy 2" in engine.output())
        engine.stop()
        lines = [line for line in engine.output().splitlines() if not line.startswith(("Listening on", "Serving "))]
        records = [json.loads(line) for line in lines]
    assert [record["message"].split()[0] for record in records] == ["-ngl", "Cohort", "Policy"]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    assert records[1]["cohort"] == 1
    assert records[2]["policy_version"] == 2
    assert "battery" not in "".join(lines)
