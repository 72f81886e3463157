"""The real backend on the tiny model, whose greedy output does not depend on how a batch was cut (docs/adr/0003)."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Sequence

import pytest

from engine.backends.base import BackendError, KvFull, KvMode
from engine.backends.finite import CheckedSampler
from engine.backends.llama import LlamaBackend, mergeable
from engine.scheduler.plan import Entry, EntryKind, Outcome, Plan, Start
from engine.scheduler.task import SamplingParams, Task
from engine.tiny_model import ORDINARY_TOKENS
from tests.integration.backends.conftest import MakeBackend

pytestmark = pytest.mark.model
GREEDY = SamplingParams(temperature=0)
N_GENERATED = 24


def make_prompt(n: int, seed: int) -> list[int]:
    return random.Random(seed).choices(ORDINARY_TOKENS, k=n)


def start(slot: int, n_past: int = 0, sampling: SamplingParams = GREEDY) -> Start:
    return Start(slot, Task(id=slot, prompt=(), sampling=sampling), n_past)


def prompt(slot: int, tokens: Sequence[int], pos: int = 0, *, output: bool = True, copy_to: tuple[int, ...] = ()) -> Entry:
    return Entry(slot, slot, EntryKind.PROMPT, tokens, pos, output, copy_to)


def run(backend: LlamaBackend, *entries: Entry, starts: Sequence[Start] = (), child_starts: Sequence[Start] = ()) -> Outcome:
    return backend.run(Plan(1, tuple(starts), entries, tuple(child_starts)))


def generate(backend: LlamaBackend, slots: dict[int, tuple[int, int]], n: int = N_GENERATED) -> dict[int, list[int]]:
    """Go on greedily: slot -> (its first token, the position it belongs to). Gives n tokens for each slot."""
    texts = {slot: [token] for slot, (token, _) in slots.items()}
    for step in range(n - 1):
        entries = [
            Entry(slot, slot, EntryKind.GENERATION, texts[slot][-1:], pos + step, True) for slot, (_, pos) in slots.items()
        ]
        for slot, token in run(backend, *entries).tokens.items():
            texts[slot].append(token)
    return texts


def complete(backend: LlamaBackend, tokens: Sequence[int], *, slot: int = 0, chunk: int = 512, n_past: int = 0) -> list[int]:
    """Prompt alone in batches of `chunk`, then generation."""
    starts = [start(slot, n_past)]
    for pos in range(n_past, len(tokens), chunk):
        last = pos + chunk >= len(tokens)
        outcome = run(backend, prompt(slot, tokens[pos : pos + chunk], pos, output=last), starts=starts)
        starts = []
    return generate(backend, {slot: (outcome.tokens[slot], len(tokens))})[slot]


def test_greedy_tasks_share_a_chain_and_keep_their_own_bans(make_backend: MakeBackend) -> None:
    backend = make_backend("split", n_slots=4)
    tokens = make_prompt(30, 5)
    plain = complete(backend, tokens, slot=0)
    banned = SamplingParams(temperature=0, logit_bias=((plain[0], -math.inf),))
    starts = [start(0), start(1, sampling=banned), start(2), start(3, sampling=SamplingParams(temperature=0.9, seed=1))]
    drawn = run(backend, *(prompt(slot, tokens) for slot in range(4)), starts=starts).tokens
    chains = [sampler.chain if isinstance(sampler, CheckedSampler) else sampler for sampler in backend._samplers]
    assert chains[0] is chains[2]
    assert len(set(map(id, chains))) == 3
    assert drawn[0] == drawn[2] == plain[0] != drawn[1]


def test_the_batch_has_prompts_in_slot_order_behind_generation(make_backend: MakeBackend) -> None:
    """Whoever was visited first; the tokens drawn are the same."""
    one, two, three = make_prompt(40, 1), make_prompt(50, 2), make_prompt(60, 3)
    backend = make_backend("split")
    begun = run(backend, prompt(2, three), starts=[start(2)]).tokens[2]
    going_on = Entry(2, 2, EntryKind.GENERATION, [begun], len(three), output=True)
    visited = [going_on, prompt(1, two), prompt(0, one)]
    assert [entry.slot for entry in mergeable(visited)] == [2, 0, 1]
    drawn = run(backend, *visited, starts=[start(1), start(0)]).tokens
    other = make_backend("split")
    assert run(other, prompt(2, three), starts=[start(2)]).tokens[2] == begun
    assert run(other, going_on, prompt(0, one), prompt(1, two), starts=[start(0), start(1)]).tokens == drawn


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_output_is_the_same_alone_chunked_batched_and_after_reuse(make_backend: MakeBackend, kv_mode: KvMode) -> None:
    backend = make_backend(kv_mode)
    prompts = [make_prompt(n, seed=n) for n in (7, 150, 260)]
    alone = [complete(backend, tokens) for tokens in prompts]
    assert len({tuple(text) for text in alone}) == 3
    assert [complete(backend, tokens, chunk=37) for tokens in prompts] == alone
    complete(backend, [*prompts[2][:200], *make_prompt(90, seed=1)])
    assert complete(backend, prompts[2], n_past=200) == alone[2]
    together = run(backend, *(prompt(slot, p) for slot, p in enumerate(prompts)), starts=[start(slot) for slot in range(3)])
    texts = generate(backend, {slot: (together.tokens[slot], len(prompts[slot])) for slot in range(3)})
    assert list(texts.values()) == alone


def test_logits_are_equal_bit_for_bit_whatever_the_batch(make_backend: MakeBackend) -> None:
    backend = make_backend(n_slots=8, n_ctx=8 * 512)
    prompts = [make_prompt(n, seed=n) for n in (5, 80, 81, 200, 33, 9, 60, 40)]
    alone = []
    for tokens in prompts:
        run(backend, prompt(0, tokens), starts=[start(0)])
        alone.append(backend._context.get_logits_ith(len(tokens) - 1))
    for n in range(2, 9):
        run(backend, *(prompt(slot, prompts[slot]) for slot in range(n)), starts=[start(slot) for slot in range(n)])
        ends = itertools.accumulate(len(tokens) for tokens in prompts[:n])
        assert [backend._context.get_logits_ith(end - 1) for end in ends] == alone[:n]


def test_output_depends_on_the_context(make_backend: MakeBackend) -> None:
    backend = make_backend()
    tokens = make_prompt(300, seed=3)
    assert complete(backend, tokens) != complete(backend, tokens[100:])


def test_prompt_beside_generation_changes_neither(make_backend: MakeBackend) -> None:
    backend = make_backend()
    first, second = make_prompt(50, seed=4), make_prompt(400, seed=5)
    alone = [complete(backend, first), complete(backend, second)]
    text = [run(backend, prompt(0, first), starts=[start(0)]).tokens[0]]
    starts = [start(1)]
    for pos in range(0, 400, 100):
        entries = [Entry(0, 0, EntryKind.GENERATION, text[-1:], 49 + len(text), True)]
        outcome = run(backend, *entries, prompt(1, second[pos : pos + 100], pos, output=pos == 300), starts=starts)
        text.append(outcome.tokens[0])
        starts = []
    texts = generate(backend, {0: (text[-1], 49 + len(text)), 1: (outcome.tokens[1], 400)}, n=N_GENERATED - len(text) + 1)
    assert text[:-1] + texts[0] == alone[0]
    assert texts[1] == alone[1][: len(texts[1])]


@pytest.mark.parametrize("kv_mode", ["split", "unified"])
def test_children_go_on_from_the_parents_cells(make_backend: MakeBackend, kv_mode: KvMode) -> None:
    backend = make_backend(kv_mode)
    tokens = make_prompt(120, seed=6)
    alone = complete(backend, tokens)
    complete(backend, make_prompt(30, seed=7), slot=1)  # what a child's slot held before must be gone
    outcome = run(backend, prompt(0, tokens, copy_to=(1, 2)), starts=[start(0)], child_starts=[start(1), start(2)])
    texts = generate(backend, {slot: (outcome.tokens[slot], 120) for slot in range(3)})
    assert list(texts.values()) == [alone] * 3


def test_children_draw_with_their_own_samplers(make_backend: MakeBackend) -> None:
    backend = make_backend(n_slots=8, n_ctx=8 * 256)
    wishes = [start(slot, sampling=SamplingParams(seed=slot, temperature=1.5)) for slot in range(8)]
    entry = prompt(0, make_prompt(20, seed=8), copy_to=tuple(range(1, 8)))
    drawn = run(backend, entry, starts=wishes[:1], child_starts=wishes[1:]).tokens
    assert len(set(drawn.values())) > 1
    assert run(backend, entry, starts=wishes[:1], child_starts=wishes[1:]).tokens == drawn


def test_full_cache_leaves_everything_as_it_was(make_backend: MakeBackend) -> None:
    backend = make_backend("unified", n_slots=2, n_ctx=512)
    first = make_prompt(300, seed=9)
    token = run(backend, prompt(0, first), starts=[start(0), start(1)]).tokens[0]
    with pytest.raises(KvFull, match="Context size has been exceeded"):
        run(backend, prompt(1, make_prompt(300, seed=10)))
    text = generate(backend, {0: (token, 300)})[0]
    backend.clear(1)
    assert complete(backend, first) == text


@pytest.mark.parametrize("entry", [prompt(0, [500], 5), prompt(0, [99_999], 2), prompt(0, [-5], 2), prompt(0, [600] * 513, 2)])
def test_bad_batch_is_refused_and_the_backend_lives_on(make_backend: MakeBackend, entry: Entry) -> None:
    backend = make_backend()
    run(backend, prompt(0, [500, 501]), starts=[start(0)])
    with pytest.raises(BackendError):
        run(backend, entry)
    assert len(complete(backend, make_prompt(10, seed=11))) == N_GENERATED


def test_bad_sampling_is_an_error_of_its_slot_alone(make_backend: MakeBackend) -> None:
    backend = make_backend()
    starts = [start(0, sampling=SamplingParams(logit_bias=((99_999, 1.0),))), start(1)]
    outcome = run(backend, prompt(0, [500, 501]), prompt(1, [500, 501]), starts=starts)
    assert list(outcome.tokens) == [1]
    assert "99999" in outcome.errors[0]


def test_slot_without_a_start_is_an_error_of_its_own(make_backend: MakeBackend) -> None:
    outcome = run(make_backend(), prompt(0, [500]), prompt(1, [500]), starts=[start(1)])
    assert list(outcome.tokens) == [1]
    assert "no sampler" in outcome.errors[0]


def test_ignore_eos_and_bias_reach_the_sampler(make_backend: MakeBackend) -> None:
    backend = make_backend()
    eos = max(backend.info.eog)
    forced = SamplingParams(temperature=0, logit_bias=((eos, 100.0),))
    kept = SamplingParams(temperature=0, logit_bias=((eos, 100.0),), ignore_eos=True)
    outcome = run(backend, prompt(0, [500]), prompt(1, [500]), starts=[start(0, sampling=forced), start(1, sampling=kept)])
    assert outcome.tokens[0] == eos
    assert outcome.tokens[1] in ORDINARY_TOKENS


def test_seed_repeats_and_no_seed_does_not(make_backend: MakeBackend) -> None:
    backend = make_backend(n_slots=2)

    def draw(seed: int | None) -> tuple[int, ...]:
        wish = SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        tokens = []
        outcome = run(backend, prompt(0, [500, 600]), starts=[start(0, sampling=wish)])
        for pos in range(2, 12):
            tokens.append(outcome.tokens[0])
            outcome = run(backend, Entry(0, 0, EntryKind.GENERATION, tokens[-1:], pos, True))
        return tuple(tokens)

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(None) != draw(None)


@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingParams(seed=41), SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=42)]
)
def test_token_drawn_at_completion_equals_one_drawn_later_from_the_owned_row(
    make_backend: MakeBackend, sampling: SamplingParams
) -> None:
    """docs/adr/0002: a held first token may be drawn when its prompt ends, whatever the others decode until it is shown.

    The binding samples from the context's own rows only. So the row is owned at completion, the chain cloned before it drew,
    and the late draw takes place on a row that is, bit for bit, the owned one.
    """
    backend = make_backend(n_slots=2)
    tokens = make_prompt(200, seed=12)
    run(backend, prompt(0, tokens[:-1], output=False), starts=[start(0, sampling=sampling), start(1)])
    chain = backend._samplers[0]
    assert isinstance(chain, CheckedSampler)
    untouched = chain.chain.clone()
    early = run(backend, prompt(0, tokens[-1:], 199)).tokens[0]
    owned = backend._context.get_logits_ith(0)

    complete(backend, make_prompt(300, seed=13), slot=1)  # the others go on, as they do while a first token is held
    assert backend._context.get_logits_ith(0) != owned

    backend._samplers[0] = untouched
    assert backend._context.memory_seq_rm(0, 199, -1)
    late = run(backend, prompt(0, tokens[-1:], 199)).tokens[0]
    assert backend._context.get_logits_ith(0) == owned
    assert late == early


def test_text_methods_work_from_other_threads_while_a_batch_runs(make_backend: MakeBackend) -> None:
    backend = make_backend(n_ctx=3 * 2048, n_batch=2048)
    expected = "Hello world, the batch of slots!"
    texts: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            texts.append(backend.detokenize(backend.tokenize(expected, add_special=False)))

    reader = threading.Thread(target=read)
    reader.start()
    run(backend, prompt(0, make_prompt(1500, seed=14)), starts=[start(0)])
    stop.set()
    reader.join()
    assert len(texts) > 20  # the decode held no lock
    assert set(texts) == {expected}


@pytest.mark.parametrize(
    "text", ["Hello world,\n\tx = {1: 'é'}  two  spaces ", " lead", "漢字 🙂", "", "<s> and </s>", "\x00\x7f"]
)
def test_text_survives_tokenize_and_detokenize(make_backend: MakeBackend, text: str) -> None:
    backend = make_backend()
    assert backend.detokenize(backend.tokenize(text, add_special=False)) == text
    pieces = map(backend.piece, backend.tokenize(text, add_special=False, parse_special=False))
    assert b"".join(pieces).decode() == text


def test_generated_text_is_printable_and_specials_have_no_piece(make_backend: MakeBackend) -> None:
    backend = make_backend()
    text = backend.detokenize(complete(backend, backend.tokenize("The batch", add_special=True)))
    assert text.isprintable()
    assert text.isascii()
    assert [backend.piece(token) for token in backend.info.eog] == [b"", b""]
    for token in (99_999, -1):
        with pytest.raises(ValueError, match="not in the vocabulary"):
            backend.piece(token)
        with pytest.raises(ValueError, match="not in the vocabulary"):
            backend.detokenize([500, token])


@pytest.mark.parametrize(("kv_mode", "n_ctx", "n_ctx_slot"), [("split", 3072, 1024), ("unified", 2816, 2816)])
def test_context_is_divided_and_padded(make_backend: MakeBackend, kv_mode: KvMode, n_ctx: int, n_ctx_slot: int) -> None:
    info = make_backend(kv_mode, n_ctx=2600).info
    assert (info.n_ctx, info.n_ctx_slot, info.kv_mode, info.can_trim) == (n_ctx, n_ctx_slot, kv_mode, True)
    assert info.build.startswith("cyllama")
    assert "llama.cpp b" in info.build


def test_every_slot_has_room_for_its_generation_token(make_backend: MakeBackend) -> None:
    assert make_backend(n_slots=3, n_batch=1).info.n_batch == 3
