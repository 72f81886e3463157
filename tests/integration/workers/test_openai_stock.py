"""A run against a server that is not ours, by nothing but its OpenAI routes: stock llama-server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_api import servers
from scheduler_api.models import Server
from tests.integration.workers.conftest import fresh
from tests.support.stock import running_stock
from workers import experiments, selectors, steps
from workers.models import Run, RunState

KEY = "stock-key"


@pytest.fixture(scope="module")
def stock() -> Iterator[str]:
    with running_stock(parallel=2, ctx_size=8192, api_key=KEY) as url:
        yield url


@pytest.fixture
def target(transactional_db: None, stock: str) -> Server:
    return servers.register("gateway", f"{stock}/v1", kind="openai", api_key=KEY)


def conduct(monkeypatch: pytest.MonkeyPatch, name: str, server: Server) -> Run:
    monkeypatch.setattr(experiments, "send", lambda run: None)
    same: dict[str, Any] = {"policy_a": {}, "policy_b": {}, "share": None, "by": None}
    run = experiments.start_run(scenario=name, server=server, repetitions=1, scale=0.01, **same)
    assert steps.conduct(run.pk, "test") is True
    return fresh(run)


def test_token_ids_are_sent_where_it_counts_them_as_they_were_sent(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    run = conduct(monkeypatch, "late-arrival", target)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    assert run.conditions["speaks"]["path"] == "/v1/completions"
    samples = list(run.samples.filter(pair=1).exclude(role="warm"))
    assert {(sample.outcome, sample.tokens_from) for sample in samples} == {("ok", "usage")}
    asked = sum(sample.n_prompt or 0 for sample in samples if sample.arm == "A")
    assert asked == run.conditions["planned"]["prompt_tokens"]
    assert selectors.results(run)["complete_pairs"] == 1


def test_conversations_go_to_its_chat(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    run = conduct(monkeypatch, "mixed-chat", target)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    assert run.conditions["speaks"]["path"] == "/v1/chat/completions"
    samples = list(run.samples.filter(pair=1))
    assert {(sample.outcome, sample.tokens_from) for sample in samples} == {("ok", "usage")}
    assert all(sample.n_prompt and sample.first_token_at for sample in samples)
