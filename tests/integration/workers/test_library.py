"""Each scenario of the library, at a small scale, on the real engine: two arms, every request accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.tiny_model import Shape
from scheduler_api.models import Server, ServerKind
from tests.integration.workers.conftest import fresh
from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_lora, write_small_model
from workers import experiments, selectors, steps
from workers.models import Run, RunState
from workers.scenarios import library
from workers.scenarios.streams import LoadScenario

SHAPE = Shape(embd=128, ff=64, vocab=2048, train_context=32768)
NAMES = [name for name in library.names() if name != "warm-behind-cold"]


@pytest.fixture(scope="module")
def small_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    folder = tmp_path_factory.mktemp("library")
    model, lora = write_small_model(folder / "small.gguf", SHAPE), write_lora(folder / "lora.gguf", [1, 3], SHAPE)
    sizes = ("--parallel", "4", "--ctx-size", "8192", "--batch-size", "256", "--ubatch-size", "128", "--no-kv-unified")
    with running_engine("--model", str(model), "--lora", str(lora), *sizes) as process:
        yield process


@pytest.fixture
def target(transactional_db: None, small_engine: EngineProcess) -> Server:
    return Server.objects.create(name="small", kind=ServerKind.ENGINE, base_url=small_engine.url)


def conduct(monkeypatch: pytest.MonkeyPatch, name: str, server: Server, **fields: Any) -> Run:
    """As a worker would, without a broker between."""
    monkeypatch.setattr(experiments, "send", lambda run: None)
    scenario = library.find(name)
    assert isinstance(scenario, LoadScenario)
    wish: dict[str, Any] = {"policy_a": scenario.arms.a, "policy_b": scenario.arms.b, "repetitions": 1, "scale": 0.02, **fields}
    run = experiments.start_run(scenario=name, server=server, share=None, by=None, **wish)
    assert steps.conduct(run.pk, "test") is True
    return fresh(run)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_with_two_arms_and_every_request_is_accounted_for(
    monkeypatch: pytest.MonkeyPatch, name: str, target: Server, small_engine: EngineProcess
) -> None:
    run = conduct(monkeypatch, name, target)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    planned = run.conditions["planned"]["requests"]
    for block in run.blocks.filter(pair=1):
        samples = list(block.samples.exclude(role="warm"))
        assert len(samples) == planned
        assert {sample.outcome for sample in samples} <= {"ok", "cancelled"}
        assert all(sample.n_generated for sample in samples if sample.outcome == "ok")
    found = selectors.results(run)
    assert found["complete_pairs"] == 1
    compared = {measure["key"] for measure in found["measures"] if measure["ratio"]["n"] == 1}
    assert {"makespan", "throughput"} < compared
    assert not any(slot["is_processing"] for slot in small_engine.get("/slots"))
