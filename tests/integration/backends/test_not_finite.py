"""A model that computes no number for one token: its task fails alone, whatever draws, and whatever shares the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends import in_graph
from engine.backends.base import BackendOptions, KvMode
from engine.backends.finite import NOT_FINITE
from engine.backends.llama import LlamaBackend
from engine.scheduler.plan import Entry, EntryKind, Outcome, Plan, Start
from engine.scheduler.task import Group, SamplingParams, Task, TaskType
from engine.tiny_model import Variant, make_tensors
from tests.support.tiny_variants import SMALL, write_small_model

pytestmark = pytest.mark.model

BROKEN = 1500  # the token whose embedding is not a number
GOOD = list(range(600, 640))
BAD = [700, 701, BROKEN, *range(702, 760)]
GREEDY = SamplingParams(temperature=0)
GRAMMAR = "root ::= [a-z ]+"

WISHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "default": {},
    "drawn": {"samplers": ("temperature",)},
    "top_p": {"samplers": ("top_p", "temperature")},
    "wide": {"top_k": 500},
    "min_p": {"samplers": ("min_p",)},
    "typical": {"typical_p": 0.5},
    "sigma": {"top_n_sigma": 1.0},
    "xtc": {"xtc_probability": 1.0},
    "dynamic": {"dynatemp_range": 0.5},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "adaptive": {"samplers": ("adaptive_p",), "adaptive_target": 0.5},
    "penalties": {"repeat_penalty": 1.5, "presence_penalty": 1.0},
    "dry": {"dry_multiplier": 1.0},
    "bias": {"logit_bias": ((0, -math.inf), (5, 3.0)), "temperature": 0.0},
    "grammar": {"grammar": GRAMMAR, "temperature": 0.0},
    "grammar drawn": {"grammar": GRAMMAR},
    "probabilities": {"n_probs": 3, "temperature": 0.0},
}

Make = Callable[..., LlamaBackend]


def write_broken_model(path: Path, value: float) -> Path:
    embedding = make_tensors(SMALL)["token_embd.weight"]
    embedding[BROKEN] = value
    return write_small_model(path, variant=Variant(tensors={"token_embd.weight": embedding}))


@pytest.fixture(scope="module", params=[math.nan, math.inf], ids=["nan", "inf"])
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_broken_model(tmp_path_factory.mktemp("models") / "broken.gguf", request.param)


@pytest.fixture(params=["outside", "in graph"])
def make(broken: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Backends that draw greedily outside llama.cpp's graph, or in it as they do for models of large vocabularies."""
    monkeypatch.setattr(in_graph, "LEAST_VOCABULARY", 1 if request.param == "in graph" else 10**9)
    made: list[LlamaBackend] = []

    def backend(kv_mode: KvMode, *, embeddings: bool = False) -> LlamaBackend:
        options = BackendOptions(3, 1536, kv_mode, n_batch=256, n_ubatch=256, n_threads=1, embeddings=embeddings)
        made.append(LlamaBackend(broken, options))
        return made[-1]

    yield backend
    for one in made:
        one.close()


def start(slot: int, sampling: SamplingParams = GREEDY, kind: TaskType = TaskType.COMPLETION) -> Start:
    return Start(slot, Task(slot, [], sampling=sampling, group=Group(kind)), 0)


def prompt(slot: int, tokens: Sequence[int], pos: int = 0, *, output: bool = True, copy_to: tuple[int, ...] = ()) -> Entry:
    return Entry(slot, slot, EntryKind.PROMPT, tokens, pos, output, copy_to)


def token(slot: int, value: int, pos: int) -> Entry:
    return Entry(slot, slot, EntryKind.GENERATION, [value], pos, True)


def run(backend: LlamaBackend, *entries: Entry, starts: Sequence[Start] = (), children: Sequence[Start] = ()) -> Outcome:
    return backend.run(Plan(1, tuple(starts), entries, tuple(children), group=Group()))


def answer(backend: LlamaBackend, slot: int, n: int = 8) -> list[int]:
    """The greedy answer to the good prompt, alone."""
    out = [run(backend, prompt(slot, GOOD), starts=[start(slot)]).tokens[slot]]
    while len(out) < n:
        out.append(run(backend, token(slot, out[-1], len(GOOD) + len(out) - 1)).tokens[slot])
    return out


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
@pytest.mark.parametrize("wish", WISHES)
def test_a_prompt_that_gives_no_number_is_an_error_before_any_draw(make: Make, kv_mode: KvMode, wish: str) -> None:
    backend = make(kv_mode)
    found = run(backend, prompt(0, BAD), starts=[start(0, SamplingParams(**WISHES[wish]))])
    assert found == Outcome(errors={0: NOT_FINITE}, lost=frozenset({0}), probs={} if wish == "probabilities" else None)
    assert answer(backend, 0) == answer(backend, 1), "nothing of it is left in the memory"


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
@pytest.mark.parametrize("wish", WISHES)
def test_a_token_that_gives_no_number_ends_generation_within_two(make: Make, kv_mode: KvMode, wish: str) -> None:
    """One more token may be drawn before the second of its kind is looked at; under a grammar and with probabilities none."""
    backend = make(kv_mode)
    found = run(backend, prompt(0, GOOD), starts=[start(0, SamplingParams(**WISHES[wish]))])
    entry, pos, drawn = token(0, BROKEN, len(GOOD)), len(GOOD), 0
    while not found.errors:
        found = run(backend, entry)
        if not found.errors:
            pos, drawn = pos + 1, drawn + 1
            entry = token(0, found.tokens[0], pos)
        assert drawn <= 1
    assert found.errors == {0: NOT_FINITE}
    assert found.lost == {0}
    assert drawn == 0 or not wish.startswith(("grammar", "probabilities"))


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_others_in_the_same_batch_go_on_with_the_same_tokens(make: Make, kv_mode: KvMode) -> None:
    backend = make(kv_mode)
    wanted = answer(backend, 1)
    out = [run(backend, prompt(1, GOOD), starts=[start(1)]).tokens[1]]
    both = run(backend, token(1, out[0], len(GOOD)), prompt(0, BAD), prompt(2, GOOD), starts=[start(0), start(2)])
    assert both.errors == {0: NOT_FINITE}
    assert both.tokens == {1: wanted[1], 2: wanted[0]}
    out.append(both.tokens[1])
    while len(out) < len(wanted):
        out.append(run(backend, token(1, out[-1], len(GOOD) + len(out) - 1)).tokens[1])
    assert out == wanted


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_a_prompt_that_is_not_done_beside_it_is_sound_or_starts_again(make: Make, kv_mode: KvMode) -> None:
    backend = make(kv_mode)
    wanted = answer(backend, 1)
    found = run(backend, prompt(0, BAD), prompt(2, GOOD[:20], output=False), starts=[start(0), start(2)])
    assert found.errors == {0: NOT_FINITE}
    assert found.lost == ({0} if kv_mode == "split" else {0, 2})
    done = 0 if 2 in found.lost else 20
    assert run(backend, prompt(2, GOOD[done:], done)).tokens == {2: wanted[0]}


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_children_share_their_parents_row(make: Make, kv_mode: KvMode) -> None:
    backend = make(kv_mode)
    found = run(backend, prompt(0, BAD, copy_to=(1, 2)), starts=[start(0)], children=[start(1), start(2, SamplingParams())])
    assert not found.tokens
    assert set(found.errors) == found.lost == {0, 1, 2}
    both = run(backend, prompt(0, GOOD, copy_to=(1,)), prompt(2, BAD), starts=[start(0), start(2)], children=[start(1)])
    assert both.errors == {2: NOT_FINITE}
    assert both.tokens[0] == both.tokens[1]
    again = run(backend, token(0, both.tokens[0], len(GOOD)), token(1, both.tokens[1], len(GOOD)))
    assert again.tokens[0] == again.tokens[1]


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_probabilities_of_the_others_stay(make: Make, kv_mode: KvMode) -> None:
    backend = make(kv_mode)
    wish = SamplingParams(temperature=0, n_probs=2)
    alone = run(backend, prompt(1, GOOD), starts=[start(1, wish)])
    beside = run(backend, prompt(0, BAD), prompt(1, GOOD), starts=[start(0, wish), start(1, wish)])
    assert beside.errors == {0: NOT_FINITE}
    assert alone.probs is not None
    assert beside.probs is not None
    assert set(beside.probs) == {1}
    assert beside.probs[1].token == alone.probs[1].token
    assert beside.probs[1].logprob == pytest.approx(alone.probs[1].logprob, rel=1e-4)


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_a_vector_that_is_no_number_is_an_error_too(make: Make, kv_mode: KvMode) -> None:
    backend, kind = make(kv_mode, embeddings=True), TaskType.EMBEDDING
    plan = Plan(1, (start(0, kind=kind), start(1, kind=kind)), (prompt(0, BAD), prompt(1, GOOD)), group=Group(kind))
    found = backend.run(plan)
    assert set(found.errors) == {0}
    assert found.vectors is not None
    assert all(map(math.isfinite, found.vectors[1][0]))


def test_a_sound_model_that_repeats_itself_is_left_alone(make: Make) -> None:
    """The second look follows each repetition, and finds nothing wrong."""
    backend = make("split")
    wish = SamplingParams(temperature=0, logit_bias=((900, 1000.0),))
    found = run(backend, prompt(0, GOOD), starts=[start(0, wish)])
    for pos in range(len(GOOD), len(GOOD) + 20):
        assert (found.tokens, found.errors) == ({0: 900}, {})
        found = run(backend, token(0, 900, pos))


def test_infinity_at_one_token_is_found(tmp_path: Path) -> None:
    """One infinite weight of the output: for half of the states its token has a logit of infinity and would always win."""
    output = make_tensors(SMALL)["output.weight"]
    output[1000, 3] = np.inf
    path = write_small_model(tmp_path / "infinite.gguf", variant=Variant(tensors={"output.weight": output}))
    backend = LlamaBackend(path, BackendOptions(1, 512, "split", n_threads=1))
    outcomes = [run(backend, prompt(0, [token]), starts=[start(0)]) for token in range(600, 640)]
    backend.close()
    failed = [one for one in outcomes if one.errors]
    assert 0 < len(failed) < len(outcomes)
    assert not any(1000 in one.tokens.values() for one in outcomes)
