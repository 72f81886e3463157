"""Drafts over HTTP: the answers of a server without them, and what is told about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_small_model

pytestmark = pytest.mark.model

PROMPT = [301, 502, 403, 604, 355, 706, 407] * 6


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    path = write_small_model(tmp_path_factory.mktemp("models") / "small.gguf")
    flags = ("--no-kv-unified", "--spec-type", "ngram-simple", "--draft-max", "8", "--spec-ngram-size-n", "2", "--metrics")
    with running_engine("-m", str(path), "-np", "2", "-c", "2048", *flags) as engine:
        yield engine


def ask(engine: EngineProcess, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 80, "temperature": 0, "return_tokens": True, "cache_prompt": False}
    return engine.complete(**{**body, **more})


def switch(engine: EngineProcess, **values: Any) -> dict[str, Any]:
    version = engine.client.get("/scheduler").json()["policy"]["version"]
    answer = engine.client.patch("/scheduler/policy", json={"expected_version": version, "set": values})
    assert answer.status_code == 200, answer.text
    policy: dict[str, Any] = answer.json()
    return policy


def fresh(engine: EngineProcess) -> None:
    """Nothing is known of what drafts cost, so they are tried: on a busy machine they may have been found not to pay."""
    switch(engine, speculative="off")
    switch(engine, speculative="ngram")


def test_llama_servers_flags_are_the_policy(engine: EngineProcess) -> None:
    effective = engine.client.get("/scheduler").json()["policy"]["effective"]
    assert (effective["speculative"], effective["speculative_n_max"], effective["speculative_ngram_size"]) == ("ngram", 8, 2)


def test_answers_are_those_of_a_server_without_drafts(engine: EngineProcess) -> None:
    """A stop string in the middle of a run ends it there; probabilities and streams have every token."""
    first = ask(engine)
    middle = first["content"][len(first["content"]) // 2 :][:6]
    wishes: list[dict[str, Any]] = [{}, {"stop": [middle]}, {"n_probs": 2, "n_predict": 30}, {"temperature": 0.7, "seed": 5}]
    fresh(engine)
    drafted = [ask(engine, **wish) for wish in wishes]
    switch(engine, speculative="off")
    plain = [ask(engine, **wish) for wish in wishes]
    switch(engine, speculative="ngram")
    assert "draft_n" in drafted[0]["timings"]
    assert not any("draft_n" in answer["timings"] for answer in plain)
    for one, other in zip(drafted, plain, strict=True):
        for name in ("content", "tokens", "tokens_predicted", "stop_type", "stopping_word", "truncated"):
            assert one.get(name) == other.get(name), name
    assert plain[1]["stop_type"] == "word"
    assert len(drafted[2]["completion_probabilities"]) == 30
    assert [each["id"] for each in drafted[2]["completion_probabilities"]] == plain[2]["tokens"]


def test_a_request_can_do_without(engine: EngineProcess) -> None:
    for wish in ({"speculative.n_max": 0}, {"speculative.types": "none"}):
        assert "draft_n" not in ask(engine, **wish)["timings"]
    refused = engine.client.post("/completion", json={"prompt": PROMPT, "speculative.n_max": -1})
    assert refused.status_code == 400
    assert "speculative.n_max" in refused.text


def test_drafts_are_told_of(engine: EngineProcess) -> None:
    fresh(engine)
    timings = ask(engine)["timings"]
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
    slots = engine.client.get("/slots").json()
    assert all(slot["speculative"] for slot in slots)
    assert (timings["draft_n"], timings["draft_n_accepted"]) in [
        (slot.get("draft_n"), slot.get("draft_n_accepted")) for slot in slots
    ]  # an idle slot shows its last task
    state = engine.client.get("/scheduler").json()
    totals = state["totals"]
    lines = dict(line.rsplit(" ", 1) for line in engine.client.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert float(lines["llamacpp:spec_decode_num_draft_tokens_total"]) == totals["drafted_tokens"] > 0
    assert float(lines["llamacpp:spec_decode_num_accepted_tokens_total"]) == totals["accepted_tokens"] > 0
    assert float(lines["llamacpp:spec_decode_num_drafts_total"]) == totals["drafts"]
    assert float(lines['llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"}']) <= totals["drafts"]
    by_slot = [float(n) for name, n in lines.items() if name.startswith("slotboard_draft_tokens_total")]
    assert sum(by_slot) == totals["drafted_tokens"]
    listed = engine.client.get("/scheduler/iterations").json()["iterations"]
    drafted = [each for each in listed if each["drafted"]]
    assert sum(n for each in drafted for _, n, _ in each["drafted"]) == totals["drafted_tokens"]
    for each in drafted:
        came_out = dict(map(tuple, each["gen"]))
        assert all(came_out[slot] == right + 1 for slot, _, right in each["drafted"])
    ended = engine.client.get("/scheduler/tasks").json()["tasks"]
    assert sum(task["n_accepted"] for task in ended) == totals["accepted_tokens"]


def test_a_policy_that_cannot_be_followed_says_why(engine: EngineProcess) -> None:
    policy = switch(engine, speculative="draft")
    assert policy["effective"]["speculative"] == "off"
    assert "--model-draft" in policy["reasons"]["speculative"]
    switch(engine, speculative="ngram")
