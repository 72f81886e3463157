"""Policies, cancellation, events and the life of the process, on the real engine."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.support.engine import ROOT, EngineProcess, running_engine, sse_data

pytestmark = pytest.mark.model

N_BATCH = 256
COLD = list(range(1000, 4000))
SHORT = list(range(5000, 5300))


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with running_engine(
        "-np", "4", "-c", "16384", "-b", str(N_BATCH), "--no-kv-unified", "--metrics", "--alias", "small"
    ) as engine:
        yield engine


@pytest.fixture(autouse=True)
def plain_policy(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        server: EngineProcess = request.getfixturevalue("engine")
        server.set_policy(prefill_order="physical", rotation_start="after_first", phase="continuous", prefill_chunk=None)


def short_behind_cold(engine: EngineProcess) -> tuple[list[int], list[int]]:
    """The iterations that served the cold prompt in slot 0 and the short one in slot 1, sent during the cold one."""
    before = engine.get("/scheduler")["iteration"]
    short = threading.Thread(target=lambda: engine.complete(prompt=SHORT, id_slot=1, n_predict=1, cache_prompt=False))
    with engine.stream(prompt=COLD, id_slot=0, n_predict=1, cache_prompt=False, return_progress=True) as events:
        next(event for event in events if event["prompt_progress"]["processed"] > 0)
        short.start()
        assert list(events)[-1]["stop"]
    short.join(30)
    served: tuple[list[int], list[int]] = ([], [])
    for iteration in engine.get(f"/scheduler/iterations?after={before}")["iterations"]:
        for slot, _ in iteration["prompt"]:
            served[slot].append(iteration["i"])
    return served


def test_rotating_order_serves_the_short_prompt_before_the_cold_one_is_done(engine: EngineProcess) -> None:
    cold, short = short_behind_cold(engine)
    assert short[0] >= cold[-1]
    engine.set_policy(prefill_order="rotating")
    cold, short = short_behind_cold(engine)
    assert short[-1] < cold[-1] - 2


POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"prefill_order": "rotating", "rotation_start": "after_last"},
    {"prefill_order": "rotating", "rotation_start": "after_first"},
    {"phase": "barrier"},
    {"phase": "barrier", "prefill_order": "rotating"},
    {"prefill_chunk": 32},
)


def test_greedy_output_is_the_same_under_every_policy(engine: EngineProcess) -> None:
    prompts = [list(range(1000 * n, 1000 * n + 100 * n)) for n in range(1, 5)]
    outputs = []
    for policy in POLICIES:
        if policy:
            engine.set_policy(**policy)
        response = engine.client.post(
            "/completion",
            json={"prompt": prompts, "n_predict": 24, "temperature": 0, "cache_prompt": False, "return_tokens": True},
        )
        outputs.append([answer["tokens"] for answer in response.json()])
        engine.set_policy(prefill_order="physical", rotation_start="after_first", phase="continuous", prefill_chunk=None)
    assert all(len(tokens) == 24 for tokens in outputs[0])
    assert all(output == outputs[0] for output in outputs[1:])


def test_streamed_text_is_the_whole_text(engine: EngineProcess) -> None:
    whole = engine.complete(prompt=SHORT, n_predict=20, return_tokens=True)
    with engine.stream(prompt=SHORT, n_predict=20) as events:
        chunks = list(events)
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [token for chunk in chunks for token in chunk["tokens"]] == whole["tokens"]
    stop = whole["content"][10:14]
    cut = engine.complete(prompt=SHORT, n_predict=20, stop=[stop])
    assert cut["stop_type"] == "word"
    assert cut["stopping_word"] == stop
    assert cut["content"] == whole["content"][: whole["content"].index(stop)]


def test_cached_prefix_is_reused(engine: EngineProcess) -> None:
    engine.complete(prompt=SHORT, id_slot=2, n_predict=1)
    again = engine.complete(prompt=[*SHORT, 7000, 7001], id_slot=2, n_predict=1)
    assert again["timings"]["cache_n"] == len(SHORT)
    assert again["timings"]["prompt_n"] == 2
    assert again["tokens_evaluated"] == len(SHORT) + 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot(engine: EngineProcess, stream: bool) -> None:
    if stream:
        with engine.stream(prompt="on and on", n_predict=-1, ignore_eos=True) as events:
            next(events)
    else:
        body = {"prompt": "on and on", "n_predict": -1, "ignore_eos": True}
        with pytest.raises(httpx2.TimeoutException), httpx2.Client(base_url=engine.url, timeout=0.3) as client:
            client.post("/completion", json=body)
    engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots), timeout=5)


def test_after_many_clients_left_at_any_moment_nothing_is_left_behind(engine: EngineProcess) -> None:
    def leave_after(n_events: int) -> None:
        body = {"prompt": list(range(2000, 2000 + 40 * n_events)), "ignore_eos": True, "stream": True, "n_cmpl": 1 + n_events % 2}
        with (
            httpx2.Client(base_url=engine.url, timeout=30) as client,
            client.stream("POST", "/completion", json=body) as response,
        ):
            events = sse_data(response.iter_lines())
            for _ in range(n_events):
                next(events)

    with ThreadPoolExecutor(24) as clients:
        list(clients.map(leave_after, [n % 7 for n in range(48)]))
    engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots), timeout=10)
    assert engine.get("/scheduler")["queue"]["depth"] == 0
    assert engine.complete(prompt=SHORT, n_predict=2)["tokens_predicted"] == 2
    assert "Traceback" not in engine.output()


def test_policy_change_conflict_refusal_and_dry_run(engine: EngineProcess) -> None:
    before = engine.get("/scheduler")["policy"]
    body = {"expected_version": before["version"], "set": {"prefill_order": "rotating"}, "reason": "a test"}
    dry = engine.client.patch("/scheduler/policy?dry_run=true", json=body).json()
    assert dry["effective"]["prefill_order"] == "rotating"
    assert engine.get("/scheduler")["policy"] == before
    changed = engine.client.patch("/scheduler/policy", json=body).json()
    assert changed["reason"] == "a test"
    assert changed == engine.get("/scheduler")["policy"]
    conflict = engine.client.patch("/scheduler/policy", json=body)
    assert conflict.status_code == 409
    assert conflict.json()["error"]["policy"] == changed
    body = {"expected_version": changed["version"], "set": {"prefill_order": "random"}}
    refused = engine.client.patch("/scheduler/policy", json=body)
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == "prefill_order"
    assert "rotating" in refused.json()["error"]["allowed"]


def test_policy_goes_back_at_its_deadline_while_idle(engine: EngineProcess) -> None:
    version = engine.get("/scheduler")["policy"]["version"]
    with engine.client.stream("GET", "/scheduler/events?interval_ms=20") as response:
        updates = sse_data(response.iter_lines())
        next(updates)
        body = {"expected_version": version, "set": {"phase": "barrier"}, "ttl_s": 0.3}
        engine.client.patch("/scheduler/policy", json=body)
        assert next(updates)["state"]["policy"]["effective"]["phase"] == "barrier"
        went_back = next(updates)["state"]["policy"]
    assert went_back["effective"]["phase"] == "continuous"
    assert went_back["reverts_at"] is None


def read_update(engine: EngineProcess, last: int | None) -> tuple[int, dict[str, Any]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with engine.client.stream("GET", "/scheduler/events", headers=headers) as response:
        lines = response.iter_lines()
        number = next(int(line.removeprefix("id: ")) for line in lines if line.startswith("id: "))
        return number, next(sse_data(lines))


def test_events_resume_where_they_ended(engine: EngineProcess) -> None:
    last, update = read_update(engine, None)
    assert update["state"]["iteration"] == last
    engine.complete(prompt=SHORT, id_slot=3, n_predict=3, cache_prompt=False)
    newest, update = read_update(engine, last)
    numbers = [iteration["i"] for iteration in update["iterations"]]
    assert not update["gap"]
    assert numbers == list(range(last + 1, newest + 1))
    assert sum(tokens for iteration in update["iterations"] for _, tokens in iteration["prompt"]) == len(SHORT)
    assert read_update(engine, newest + 1000)[1]["gap"]  # an id from another life of the server
    listed = engine.get(f"/scheduler/iterations?after={last}")
    assert listed == {"gap": False, "iterations": update["iterations"]}
    ended = update["tasks"][-1]
    assert (ended["slot"], ended["reason"], ended["n_prompt"], ended["n_generated"]) == (3, "limit", len(SHORT), 3)
    assert ended["submitted_at"] <= ended["first_visit_at"] <= ended["prompt_done_at"] <= ended["first_token_at"]
    assert 0 < ended["worst_gap_s"] <= ended["finished_at"] - ended["first_token_at"]
    assert engine.get(f"/scheduler/tasks?after={ended['n'] - 1}") == {"gap": False, "tasks": [ended]}


def test_a_cancelled_task_is_told_as_ended(engine: EngineProcess) -> None:
    before = engine.get("/scheduler/tasks?limit=8192")["tasks"]
    with engine.stream(prompt=SHORT, n_predict=3000) as events:
        next(events)
    deadline = time.monotonic() + 10
    ended: list[dict[str, Any]] = []
    while not ended and time.monotonic() < deadline:
        ended = engine.get(f"/scheduler/tasks?after={before[-1]['n'] if before else 0}")["tasks"]
        time.sleep(0.02)
    assert [task["reason"] for task in ended] == ["cancelled"]


def test_state_is_served_during_a_batch(engine: EngineProcess) -> None:
    with engine.stream(prompt=COLD, n_predict=1, cache_prompt=False, return_progress=True) as events:
        next(events)
        slow = 0.0
        for _ in range(5):
            began = time.monotonic()
            slots = engine.get("/scheduler")["slots"]
            slow = max(slow, time.monotonic() - began)
        list(events)
    assert any(slot["state"] == "prompt" for slot in slots)
    assert slow < 5


def test_prompt_too_long_for_a_slot(engine: EngineProcess) -> None:
    response = engine.client.post("/completion", json={"prompt": [1000] * 4096, "stream": True})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["n_prompt_tokens"], error["n_ctx"]) == ("exceed_context_size_error", 4096, 4096)


def test_chat_goes_through_the_models_template(engine: EngineProcess) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}
    rendered = engine.client.post("/apply-template", json=body).json()["prompt"]
    assert "hello" in rendered
    answer = engine.client.post("/v1/chat/completions", json=body).json()
    direct = engine.complete(prompt=rendered, n_predict=4)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": direct["content"]}
    assert answer["usage"]["prompt_tokens"] == direct["tokens_evaluated"]


def test_text_survives_the_way_through_tokens(engine: EngineProcess) -> None:
    text = "hello wörld, 你好"
    tokens = engine.client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert engine.client.post("/detokenize", json={"tokens": tokens}).json()["content"].strip() == text


def test_key_is_required_but_for_health() -> None:
    with running_engine("-np", "1", "-c", "512", "--no-slots", env={"LLAMA_API_KEY": "first,second"}) as engine:
        assert engine.client.get("/scheduler").status_code == 401
        assert engine.client.get("/scheduler", headers={"Authorization": "Bearer third"}).status_code == 401
        for headers in ({"Authorization": "Bearer second"}, {"Authorization": "first"}, {"X-Api-Key": "second"}):
            assert engine.client.get("/scheduler", headers=headers).status_code == 200
        both = {"Authorization": "Bearer third", "X-Api-Key": "second"}
        assert engine.client.get("/scheduler", headers=both).status_code == 401
        assert engine.client.get("/slots", headers={"X-Api-Key": "first"}).status_code == 501
        assert engine.client.get("/metrics", headers={"X-Api-Key": "first"}).status_code == 501


def test_automatic_parallelism_turns_unified_kv_on_and_keeps_physical_order() -> None:
    with running_engine("-c", "2048", "--prefill-order", "rotating") as engine:
        state = engine.get("/scheduler")
        assert state["kv"]["mode"] == "unified"
        assert state["kv"]["resolved_from"] == "auto"
        assert state["server"]["n_ctx_slot"] == 2048
        assert state["policy"]["requested"]["prefill_order"] == "rotating"
        assert state["policy"]["effective"]["prefill_order"] == "physical"
        assert state["policy"]["reasons"]["prefill_order"]
        assert "unified KV cache by automatic parallelism" in engine.output()


def test_a_full_shared_cache_fails_the_tasks_and_not_the_server() -> None:
    with running_engine("-np", "2", "-c", "512", "--kv-unified") as engine:
        prompts = [list(range(1000, 1250)), list(range(2000, 2250))]
        response = engine.client.post("/completion", json={"prompt": prompts, "n_predict": 200, "ignore_eos": True})
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "Context size has been exceeded."
        engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))
        assert engine.complete(prompt=prompts[0], n_predict=2)["tokens_predicted"] == 2


def test_sigterm_ends_it_in_two_seconds_with_code_0_also_while_it_serves() -> None:
    with running_engine("-np", "2", "-c", "4096") as engine:
        with (
            httpx2.Client(base_url=engine.url, timeout=30) as client,
            client.stream("GET", "/scheduler/events") as watching,
            client.stream("POST", "/completion", json={"prompt": "on", "ignore_eos": True, "stream": True}) as running,
        ):
            updates, events = sse_data(watching.iter_lines()), sse_data(running.iter_lines())
            next(updates)
            next(events)
            began = time.monotonic()
            code = engine.stop()
            took = time.monotonic() - began
            last = list(events)[-1]
        assert code == 0
        assert took < 2
        assert last["error"]["message"] == "The server is shutting down."
        assert "Traceback" not in engine.output()


def run_engine(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "engine", *args], cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_a_bad_model_path_is_one_sentence_and_code_1() -> None:
    result = run_engine("--port", "0", "--model", "/nowhere/model.gguf")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "/nowhere/model.gguf" in result.stderr


def test_a_port_in_use_is_one_sentence_and_code_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run_engine("--port", str(port))
    assert result.returncode == 1
    assert result.stderr == f"The server cannot listen on 127.0.0.1 port {port}: Address already in use.\n"


def test_a_wrong_flag_is_code_2() -> None:
    assert run_engine("--parallel", "0").returncode == 2
