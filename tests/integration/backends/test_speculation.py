"""Drafts on real llama.cpp: with a model whose sums are exact, the output is that of a server without them, to the last token."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.backends.base import BackendOptions, DraftOptions
from engine.backends.llama import LlamaBackend
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.policy import Policy, changed, table
from engine.scheduler.task import SamplingParams, Task
from engine.tiny_model import DEFAULT_PATH, ensure_tiny_model
from tests.support.tiny_variants import write_small_model

GREEDY = SamplingParams(temperature=0.0)
ON: dict[str, Any] = {"speculative": "ngram", "speculative_ngram_size": 2, "speculative_n_max": 12}
Wished = list[tuple[list[int], SamplingParams]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("speculation") / "small.gguf")


@pytest.fixture(scope="module")
def backend(path: Path) -> Iterator[LlamaBackend]:
    """With itself as its draft model: what that guesses is right."""
    draft = DraftOptions(path)
    made = LlamaBackend(path, BackendOptions(3, 6144, "split", n_batch=512, n_ubatch=128, n_threads=2, draft=draft))
    yield made
    made.close()


class Clock:
    """Moves a second a look, so that each batch takes as long as any other and a drafted token costs nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def generate(
    backend: LlamaBackend,
    wished: Wished,
    policy: dict[str, Any],
    *,
    n: int = 60,
    before: Callable[[int, Scheduler], None] | None = None,
    **config: Any,
) -> tuple[list[list[int]], Scheduler]:
    """Each task's tokens, on a server with this policy; `before` is called before each batch."""
    info, clock = backend.info, Clock()
    sizes: dict[str, Any] = {"n_batch": info.n_batch, "n_ubatch": info.n_ubatch, "kv_mode": info.kv_mode, **config}
    settings = SchedulerConfig(3, info.n_ctx_slot, info.n_ctx, can_draft=True, draft_model=info.draft_model, **sizes)
    scheduler = Scheduler(settings, changed(Policy(), policy, table(info.n_batch)))
    for index, (tokens, sampling) in enumerate(wished):
        task = Task(index, tokens, n_predict=n + 3 * index, id_slot=index, cache_prompt=False, sampling=sampling)
        scheduler.submit(task, clock())
    outputs: list[list[int]] = [[] for _ in wished]
    for step in range(2000):
        if not scheduler.has_work:
            return outputs, scheduler
        if before is not None:
            before(step, scheduler)
        plan = scheduler.plan(clock())
        outcome = backend.run(plan)
        assert not outcome.errors
        for emission in scheduler.settle(plan, outcome, clock()).emissions:
            outputs[emission.task_id].append(emission.token)
    raise AssertionError("still busy")


def prompts(*sizes: int) -> list[list[int]]:
    """Each repeats itself, so that a lookup finds something from the beginning."""
    made = []
    for size in sizes:
        rng = random.Random(size)
        part = [rng.randrange(300, 900) for _ in range(7)]
        made.append((part * (size // 7 + 1))[:size])
    return made


def greedy(*sizes: int) -> Wished:
    return [(tokens, GREEDY) for tokens in prompts(*sizes)]


@pytest.mark.parametrize("order", ["physical", "rotating", "fair", "shortest_first"])
@pytest.mark.parametrize("phase", ["continuous", "barrier"])
def test_greedy_output_is_the_same_under_every_order_and_the_barrier(backend: LlamaBackend, order: str, phase: str) -> None:
    wished = greedy(150, 20, 30)
    policy = {"prefill_order": order, "phase": phase, "prefill_chunk": 64}
    plain, _ = generate(backend, wished, policy)
    with_drafts, scheduler = generate(backend, wished, {**policy, **ON})
    assert with_drafts == plain
    assert [len(tokens) for tokens in plain] == [60, 63, 66]
    assert scheduler._totals.accepted_tokens > 20


def test_a_draft_model_that_is_right_brings_the_same_in_few_batches(backend: LlamaBackend) -> None:
    assert backend.info.draft_model
    plain, before = generate(backend, greedy(40, 20, 30), {})
    with_drafts, scheduler = generate(backend, greedy(40, 20, 30), {"speculative": "draft", "speculative_n_max": 8})
    assert with_drafts == plain
    totals = scheduler._totals
    assert totals.accepted_tokens == totals.drafted_tokens > 100
    assert totals.iterations < before._totals.iterations / 2


def test_switches_in_the_middle_change_nothing(backend: LlamaBackend) -> None:
    policies: list[dict[str, Any]] = [
        ON,
        {"speculative": "draft"},
        {"speculative": "off", "phase": "barrier"},
        {**ON, "phase": "continuous"},
    ]

    def switch(step: int, scheduler: Scheduler) -> None:
        if step % 5 == 2:
            version = scheduler.policy(0.0).version
            scheduler.set_policy(policies[step // 5 % 4], expected_version=version, now=1e3 + step)

    plain, _ = generate(backend, greedy(90, 20, 30), {})
    switched, scheduler = generate(backend, greedy(90, 20, 30), {}, before=switch)
    assert switched == plain
    assert scheduler._totals.accepted_tokens


DRAWN = SamplingParams(temperature=0.9, seed=11, top_k=20)


@pytest.mark.parametrize(
    "sampling",
    [
        DRAWN,
        replace(DRAWN, temperature=0.2),
        replace(GREEDY, repeat_penalty=1.3, repeat_last_n=20),
        replace(GREEDY, grammar='root ::= (" " [a-z]+)+'),
        replace(GREEDY, logit_bias=((700, 2.0),), ignore_eos=True),
        replace(DRAWN, mirostat=2),
    ],
    ids=["temperature", "cool", "penalty", "grammar", "bias", "mirostat"],
)
def test_a_sampler_draws_what_it_would_draw_alone(backend: LlamaBackend, sampling: SamplingParams) -> None:
    wished = [(tokens, sampling) for tokens in prompts(40, 25)]
    plain, _ = generate(backend, wished, {}, n=40)
    for policy in (ON, {"speculative": "draft"}):
        assert generate(backend, wished, policy, n=40)[0] == plain


def test_probabilities_come_with_each_token(backend: LlamaBackend) -> None:
    found: list[list[tuple[int, float]]] = []
    for policy in ({}, ON):
        kept: list[tuple[int, float]] = []
        run = backend.run

        def noted(plan: Any, kept: list[tuple[int, float]] = kept, run: Any = run) -> Any:
            outcome = run(plan)
            for probs in [*(outcome.probs or {}).values(), *[p for listed in (outcome.run_probs or {}).values() for p in listed]]:
                kept.append((probs.token, round(probs.logprob, 5)))
            return outcome

        backend.run = noted  # type: ignore[method-assign]
        try:
            outputs, scheduler = generate(backend, [(prompts(40)[0], replace(GREEDY, n_probs=2))], policy, n=30)
        finally:
            del backend.run
        assert [token for token, _ in kept] == outputs[0]
        found.append(kept)
    assert scheduler._totals.accepted_tokens
    assert found[0] == found[1]


def test_a_context_that_shifts_or_ends_does_so_at_the_same_token(path: Path) -> None:
    made = LlamaBackend(path, BackendOptions(3, 768, "split", n_batch=128, n_ubatch=128, n_threads=2, draft=DraftOptions(path)))
    try:
        for shift in (False, True):
            plain, _ = generate(made, greedy(170), {}, n=130, context_shift=shift)
            for policy in (ON, {"speculative": "draft"}):
                with_drafts, scheduler = generate(made, greedy(170), policy, n=130, context_shift=shift)
                assert with_drafts == plain
                assert scheduler._totals.accepted_tokens > 50 or policy is ON  # what a lookup finds is up to the text
    finally:
        made.close()


def test_in_a_unified_pool_too(path: Path) -> None:
    made = LlamaBackend(
        path, BackendOptions(3, 1024, "unified", n_batch=128, n_ubatch=128, n_threads=2, draft=DraftOptions(path))
    )
    try:
        plain, _ = generate(made, greedy(40, 60, 20), {})
        for policy in (ON, {"speculative": "draft"}):
            assert generate(made, greedy(40, 60, 20), policy)[0] == plain
    finally:
        made.close()


def test_the_default_model_and_one_with_another_vocabulary(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The draft is left out with a sentence, and the lookup works all the same."""
    tiny = ensure_tiny_model(Path(__file__).parents[3] / DEFAULT_PATH)
    made = LlamaBackend(tiny, BackendOptions(3, 3072, "split", n_batch=256, n_threads=2, draft=DraftOptions(path)))
    try:
        assert not made.info.draft_model
        assert "vocabulary" in caplog.text
        assert "vocabulary" in made.info.draft_unfit
        plain, _ = generate(made, greedy(40, 20), {}, n=25)
        assert generate(made, greedy(40, 20), ON, n=25)[0] == plain
    finally:
        made.close()
