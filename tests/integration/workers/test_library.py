"""Each scenario of the library, at a small scale, on the real engine: two arms, every request accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from engine.tiny_model import Shape
from scheduler_api import servers
from scheduler_api.models import Server, ServerKind
from scheduler_api.servers import KindChoice
from tests.integration.workers.conftest import WorkerProcess, fresh, wait_for
from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_lora, write_small_model
from workers import experiments, preflight, selectors, steps
from workers.errors import ExperimentRefused
from workers.load import tally
from workers.load.tally import Tally
from workers.models import Block, Run, RunState
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
        tries = None if block.search is None else block.search["tries"]
        if tries is None:
            assert len(samples) == planned
        else:  # a try for which a loaded machine was too slow is kept as well, and none of the search
            assert len(samples) >= sum(each["requests"] for each in tries)
        assert {sample.outcome for sample in samples} <= {"ok", "cancelled"}
        assert all(sample.n_generated for sample in samples if sample.outcome == "ok")
    found = selectors.results(run)
    assert found["complete_pairs"] == 1
    compared = {measure["key"] for measure in found["measures"] if measure["ratio"]["n"] == 1}
    if name == "saturation":
        assert [len(found["searches"][arm]) for arm in "AB"] == [1, 1]
        assert compared <= {"request.capacity"}
    else:
        assert {"makespan", "throughput"} < compared
    assert not any(slot["is_processing"] for slot in small_engine.get("/slots"))


def test_warm_behind_cold_runs_on_a_real_model_too(
    monkeypatch: pytest.MonkeyPatch, target: Server, small_engine: EngineProcess
) -> None:
    monkeypatch.setattr(experiments, "send", lambda run: None)
    arms: dict[str, Any] = {"policy_a": {"prefill_order": "physical"}, "policy_b": {"prefill_order": "rotating"}}
    run = experiments.start_run(
        scenario="warm-behind-cold", server=target, repetitions=1, scale=0.04, share=None, by=None, **arms
    )
    assert steps.conduct(run.pk, "test") is True
    assert (fresh(run).state, run.error, run.policy_restored) == (RunState.FINISHED, "", True)
    assert selectors.results(run)["complete_pairs"] == 1
    assert all(sample.ok for sample in run.samples.filter(pair=1))


def names_of(found: dict[str, Any]) -> set[str]:
    return {measure["key"] for measure in found["measures"]}


def test_auto_scale_fits_the_slots_and_says_what_it_chose(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    """A slot holds 2,048 tokens, so a prompt of 10,000 cannot stay as long as the server's speed would allow."""
    run = conduct(monkeypatch, "two-long-one-short", target, scale="auto")
    assert (run.state, run.scale_auto) == (RunState.FINISHED, True)
    fitted = run.conditions["fitted"]
    assert fitted["scale"] == run.scale < 0.25
    assert fitted["times"] == pytest.approx(run.scale * 4000 / fitted["speed"])
    assert max(sample.n_prompt or 0 for sample in run.samples.all()) <= 2048


def test_a_scale_that_is_too_large_is_refused_and_ends_a_run_whose_server_became_smaller(
    monkeypatch: pytest.MonkeyPatch, target: Server
) -> None:
    sentence = "A slot holds 2,048 tokens, and the largest request needs 10,005 at this scale."
    with pytest.raises(ExperimentRefused, match=sentence):
        conduct(monkeypatch, "two-long-one-short", target, scale=1.0)
    monkeypatch.setattr(preflight, "of_load", lambda *_, **__: [])
    run = conduct(monkeypatch, "two-long-one-short", target, scale=1.0)
    assert run.state == RunState.FAILED
    assert run.error.startswith(sentence)
    assert run.policy_restored is None


def test_blocks_of_a_pair_are_the_same_load_on_fresh_text(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    run = conduct(monkeypatch, "mixed-chat", target)
    a, b = run.blocks.filter(pair=1).order_by("index")

    def load(block: Block) -> list[tuple[Any, ...]]:
        first = min(sample.scheduled_at or 0 for sample in block.samples.all() if sample.scheduled_at)
        rows = block.samples.order_by("role", "place")
        return [
            (
                row.role,
                row.place,
                row.n_prompt,
                row.n_generated,
                row.scheduled_at and pytest.approx(row.scheduled_at - first, abs=1e-4),
            )
            for row in rows
        ]

    assert load(a) == load(b)
    documents = b.samples.filter(role="document")
    assert all((sample.n_cached or 0) < 16 for sample in documents)
    assert b.samples.filter(role="chat", n_cached__gt=0).exists()  # the shared prefix


def test_of_a_large_load_a_part_is_kept_and_all_of_it_measured(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    monkeypatch.setattr(tally, "RAW_MOST", 5)
    run = conduct(monkeypatch, "victim-and-attacker", target)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    planned, every = run.conditions["planned"]["requests"], run.conditions["planned"]["kept_every"]
    assert every == -(-planned // 5) > 1
    for block in run.blocks.filter(pair=1):
        assert block.samples.exclude(role="warm").count() == -(-planned // every)
        assert Tally.of_json(block.tally).of().requests == planned
    found = selectors.results(run)
    assert sum(found["outcomes"]["A"]["victim"].values()) + sum(found["outcomes"]["A"]["attacker"].values()) == planned
    assert {"victim.ttft_p50", "attacker.e2e_p50", "makespan", "throughput"} <= names_of(found)
    fair = {measure["key"] for measure in found["fairness"]["measures"]}
    assert {"victim.gap", "attacker.wait", "victim.slowdown", "jain_streams", "jain_slowdown", "oldest_wait"} <= fair
    assert any("percentiles and slowdowns are within 0.5 %" in note for note in found["notes"])
    assert any(f"one of {every} is kept with its times" in text for text in run.warnings)


def test_what_warms_is_warm_under_both_arms(monkeypatch: pytest.MonkeyPatch, target: Server) -> None:
    run = conduct(monkeypatch, "agents", target)
    for block in run.blocks.filter(pair=1):
        assert block.samples.filter(role="warm").count() == 3
        first_turns = [sample for sample in block.samples.filter(role="agent") if (sample.place or 0) % 4 == 0]
        assert sum((sample.n_cached or 0) >= 150 for sample in first_turns) >= 2


@pytest.mark.parametrize(("kind", "tokens_from"), [("llama_server", "timings"), ("openai", "usage")])
def test_a_server_that_cannot_switch_is_measured_with_equal_arms_only(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None, small_engine: EngineProcess, kind: KindChoice, tokens_from: str
) -> None:
    """The engine's llama-server and OpenAI routes, as those kinds are spoken to."""
    server = servers.register("other", f"{small_engine.url}{'/v1' if kind == 'openai' else ''}", kind=kind)
    with pytest.raises(ExperimentRefused, match="cannot switch policies while it runs"):
        conduct(monkeypatch, "late-arrival", server)
    run = conduct(monkeypatch, "late-arrival", server, policy_a={}, policy_b={}, scale=0.01)
    assert (run.state, run.error, run.policy_restored) == (RunState.FINISHED, "", None)
    assert {sample.tokens_from for sample in run.samples.filter(pair=1)} == {tokens_from}
    if kind == "openai":  # its /v1/completions takes token ids, so sizes are as planned there too
        assert run.conditions["speaks"]["path"] == "/v1/completions"
        assert not any("takes text" in text or "is tried" in text for text in run.warnings)
    asked = sum(sample.n_prompt or 0 for sample in run.samples.filter(pair=1, arm="A").exclude(role="warm"))
    assert asked == run.conditions["planned"]["prompt_tokens"]


def test_conversations_go_to_the_chat_of_an_openai_compatible_server(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None, small_engine: EngineProcess
) -> None:
    server = servers.register("other", f"{small_engine.url}/v1", kind="openai")
    run = conduct(monkeypatch, "mixed-chat", server, policy_a={}, policy_b={}, scale=0.01)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    assert run.conditions["speaks"]["path"] == "/v1/chat/completions"
    samples = list(run.samples.filter(pair=1))
    assert {(sample.outcome, sample.tokens_from) for sample in samples} == {("ok", "usage")}
    assert all(sample.n_prompt for sample in samples)
    for sentence in ("takes text, so prompts are only about as long", "cannot be told what to keep in its cache"):
        assert any(sentence in text for text in run.warnings), sentence


@pytest.mark.parametrize(
    ("name", "arms", "sentence"),
    [
        ("victim-and-attacker", {"policy_b": {"prefill_order": "alphabetical"}}, "Arm B: small refuses this policy"),
        ("nowhere", {"policy_a": {}, "policy_b": {}}, "There is no scenario 'nowhere'; known are agents, cancel-storm"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, target: Server, name: str, arms: dict[str, Any], sentence: str
) -> None:
    wish = {"policy_a": {}, "policy_b": {}, **arms}
    with pytest.raises(ExperimentRefused, match=sentence):
        experiments.start_run(scenario=name, server=target, repetitions=1, scale=0.02, share=None, by=None, **wish)
    assert not Run.objects.exists()


def test_adapters_that_are_not_there_are_said_beforehand(transactional_db: None, engine: EngineProcess) -> None:
    server = Server.objects.create(name="plain", kind=ServerKind.ENGINE, base_url=engine.url)
    with pytest.raises(ExperimentRefused, match="The server has 0 LoRA adapters loaded, and the scenario needs 1"):
        experiments.start_run(
            scenario="lora-group", server=server, policy_a={}, policy_b={}, repetitions=1, scale=0.02, share=None, by=None
        )


def test_its_page_shows_verdict_and_measures(
    monkeypatch: pytest.MonkeyPatch, target: Server, operator: User, client: Client
) -> None:
    run = conduct(monkeypatch, "victim-and-attacker", target)
    client.force_login(operator)
    page = client.get(f"/experiments/{run.pk}/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "victim: TTFT, mean" in text
    assert "Not enough runs to show a difference" in text
    for more in ("?measure=itl", "?pair=1", "samples/?arm=B", "trend/", "badge.svg"):
        assert client.get(f"/experiments/{run.pk}/{more}").status_code == 200
    listed = client.get("/experiments/").content.decode()
    assert "victim: TTFT, mean" in listed
    assert "no pair is complete" not in listed
    table = client.get(f"/experiments/{run.pk}/samples.csv")
    assert table.status_code == 200
    assert len(table.content.decode().strip().splitlines()) == 1 + run.samples.count()


def test_from_the_shell_with_the_scenarios_own_arms(
    worker: WorkerProcess, target: Server, small_engine: EngineProcess, tmp_path: Path
) -> None:
    """A file of one's own, through a real worker and broker; the policy found is put back."""
    small_engine.set_policy(prefill_order="shortest_first")
    file = tmp_path / "mine.yaml"
    file.write_text(library.text_of("victim-and-attacker").replace("name: victim-and-attacker", "name: mine", 1))
    out = StringIO()
    call_command("experiment", str(file), "--server", "small", "--pairs", "1", "--scale", "0.02", stdout=out)
    run = Run.objects.get(pk=int(out.getvalue()))
    wait_for(lambda: not fresh(run).active, 30, lambda: (run.state, run.progress_text))
    assert (run.scenario, run.state, run.error, run.policy_restored) == ("mine", RunState.FINISHED, "", True)
    assert (run.policy_a, run.policy_b) == ({"prefill_order": "physical"}, {"prefill_order": "rotating"})
    assert small_engine.get("/scheduler")["policy"]["requested"]["prefill_order"] == "shortest_first"
    assert {"victim.ttft_p50", "attacker.e2e_p50", "makespan"} <= names_of(selectors.results(run))


def test_a_stop_in_the_middle_of_a_load_frees_the_slots_within_a_second_or_so(
    worker: WorkerProcess, target: Server, small_engine: EngineProcess, operator: User, operator_client: Client
) -> None:
    run = experiments.start_run(
        scenario="cancel-storm", server=target, policy_a={}, policy_b={}, repetitions=50, scale=0.3, share=None, by=operator
    )
    wait_for(lambda: run.blocks.filter(pair__gt=0).exists(), 30, lambda: fresh(run).progress_text)
    assert operator_client.get(f"/experiments/{run.pk}/").status_code == 200
    experiments.request_stop(fresh(run), operator)
    took = wait_for(lambda: not fresh(run).active, 10)
    assert (run.state, run.error) == (RunState.STOPPED, "")
    assert took < 5, f"the stop took {took:.1f} s even on a busy machine"
    small_engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))


def test_a_faulty_file_is_refused_with_its_line(target: Server, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(library.text_of("late-arrival").replace("slo: {itl_s: 0.5}", "slo: {itl: 0.5}"))
    with pytest.raises(CommandError, match=r"mine.yaml, line \d+: streams\[0\].slo.itl is unknown; known here are ttft_s, itl_s"):
        call_command("experiment", str(file), "--server", "small")
