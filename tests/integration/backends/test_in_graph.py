"""Greedy draws inside llama.cpp's graph are the draws made outside it, whatever else the slots do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backends import in_graph
from engine.backends.base import BackendOptions
from engine.backends.llama import LlamaBackend
from engine.scheduler.plan import Entry, EntryKind, Plan, Start
from engine.scheduler.task import Group, SamplingParams, Task
from tests.support.tiny_variants import write_small_model

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0)
ON_ITS_WAY = SamplingParams(temperature=0, ignore_eos=True, logit_bias=((5, -math.inf), (77, 2.5)))
DRAWN = SamplingParams(seed=1)
Wishes = Sequence[SamplingParams | None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("models") / "small.gguf")


@pytest.fixture
def outside(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaBackend]:
    monkeypatch.setattr(in_graph, "LEAST_VOCABULARY", 10**9)
    yield from _backend(model)


@pytest.fixture
def inside(model: Path, outside: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaBackend]:
    monkeypatch.setattr(in_graph, "LEAST_VOCABULARY", 1)
    yield from _backend(model)


def _backend(model: Path) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(model, BackendOptions(3, 1536, "split", n_batch=256, n_ubatch=256, n_threads=1))
    yield backend
    backend.close()


def answers(
    backend: LlamaBackend, wishes: Sequence[SamplingParams | None], n: int = 12, n_predict: int = -1
) -> dict[int, list[int]]:
    """Prompts of different tokens in the slots that have a wish, at once, and `n` tokens of each answer."""
    slots = {slot: wish for slot, wish in enumerate(wishes) if wish}
    starts = [Start(slot, Task(slot, [], n_predict=n_predict, sampling=wish), 0) for slot, wish in slots.items()]
    prompts = {slot: range(600 + 50 * slot, 620 + 50 * slot) for slot in slots}
    entries = [Entry(slot, slot, EntryKind.PROMPT, prompts[slot], 0, True, ()) for slot in slots]
    out = {slot: [token] for slot, token in _run(backend, entries, starts).items()}
    for pos in range(20, 19 + n):
        tokens = _run(backend, [Entry(slot, slot, EntryKind.GENERATION, [out[slot][-1]], pos, True) for slot in slots], [])
        for slot, token in tokens.items():
            out[slot].append(token)
    return out


def _run(backend: LlamaBackend, entries: Sequence[Entry], starts: Sequence[Start]) -> dict[int, int]:
    outcome = backend.run(Plan(1, tuple(starts), tuple(entries), (), group=Group()))
    assert not outcome.errors
    return outcome.tokens


def attached(backend: LlamaBackend) -> set[int]:
    return set(backend._context.backend_samplers)


def test_the_same_tokens_come_out(inside: LlamaBackend, outside: LlamaBackend) -> None:
    wishes: Wishes = [GREEDY, ON_ITS_WAY, GREEDY]
    assert answers(inside, wishes) == answers(outside, wishes)
    assert attached(inside) == {0, 1, 2}
    assert attached(outside) == set()


def test_a_slot_follows_what_its_tasks_want(inside: LlamaBackend, outside: LlamaBackend) -> None:
    rounds: list[Wishes] = [[GREEDY, DRAWN, None], [ON_ITS_WAY, GREEDY, GREEDY], [DRAWN, GREEDY, None], [GREEDY, None, DRAWN]]
    seen = []
    for wishes in rounds:
        assert answers(inside, wishes) == answers(outside, wishes)
        seen.append(attached(inside))
    assert seen == [{0}, {0, 1, 2}, {1, 2}, {0, 1}]


def test_a_short_answer_is_not_worth_the_change(inside: LlamaBackend) -> None:
    answers(inside, [GREEDY], n=2, n_predict=in_graph.LEAST_ANSWER - 1)
    assert attached(inside) == set()
    answers(inside, [GREEDY], n=2, n_predict=in_graph.LEAST_ANSWER)
    assert attached(inside) == {0}
    answers(inside, [GREEDY], n=2, n_predict=1)
    assert attached(inside) == {0}, "what is attached stays for a task that wants the same"


def test_probabilities_are_of_the_row_itself(inside: LlamaBackend) -> None:
    answers(inside, [GREEDY], n=2)
    answers(inside, [SamplingParams(temperature=0, n_probs=3)], n=2)
    assert attached(inside) == set()


def test_a_child_draws_from_its_parents_row(inside: LlamaBackend, outside: LlamaBackend) -> None:
    found = []
    for backend in (inside, outside):
        starts = [Start(slot, Task(slot, [], sampling=GREEDY), 0) for slot in (0, 1)]
        entry = Entry(0, 0, EntryKind.PROMPT, range(600, 640), 0, True, (1,))
        found.append(backend.run(Plan(1, (starts[0],), (entry,), (starts[1],), group=Group())))
    assert found[0] == found[1]
    assert found[0].tokens[0] == found[0].tokens[1]


ENDLESS = SamplingParams(temperature=0, ignore_eos=True)


def end_with(backend: LlamaBackend, tokens: Iterable[int]) -> None:
    """As if these tokens ended the model's texts."""
    backend._sampling = backend._in_graph._sampling = replace(backend._sampling, eog=frozenset(tokens), shared={})


def test_ends_of_texts_are_passed_over(inside: LlamaBackend, outside: LlamaBackend) -> None:
    plain = answers(outside, [GREEDY, GREEDY, None])
    for backend in (inside, outside):
        end_with(backend, (plain[0][2], plain[1][0]))
    wishes: Wishes = [ENDLESS, ENDLESS, GREEDY]
    found = answers(inside, wishes)
    assert found == answers(outside, wishes)
    assert [found[slot][:3] == plain[slot][:3] for slot in (0, 1)] == [False, False]
    assert attached(inside) == {0, 1, 2}


def test_a_text_that_wants_to_end_is_drawn_outside(inside: LlamaBackend, outside: LlamaBackend) -> None:
    for backend in (inside, outside):
        end_with(backend, range(0, backend.info.n_vocab - 1))  # all but one
    found = answers(inside, [ENDLESS, GREEDY], n=in_graph.MOST_REDRAWN)
    assert found[0] == [inside.info.n_vocab - 1] * in_graph.MOST_REDRAWN
    assert attached(inside) == {1}
    assert found == answers(outside, [ENDLESS, GREEDY], n=in_graph.MOST_REDRAWN)
    assert answers(inside, [ENDLESS], n=3)[0] == found[0][:3]
    assert attached(inside) == {0, 1}, "the next task starts in the graph again"
