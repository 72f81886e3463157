from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.base import BackendError, BackendOptions, KvFull, KvMode
from engine.backends.simulated import BOS, EOS, N_VOCAB, CostModel, SimulatedBackend
from engine.clock import VirtualClock
from engine.scheduler.plan import Entry, EntryKind, Outcome, Plan, Start
from engine.scheduler.task import SamplingParams, Task

GREEDY = SamplingParams(temperature=0)


def make_backend(
    *, n_ctx: int = 4096, kv_mode: KvMode = "split", cost: CostModel | None = None, clock: VirtualClock | None = None
) -> SimulatedBackend:
    return SimulatedBackend(BackendOptions(n_slots=2, n_ctx=n_ctx, kv_mode=kv_mode), cost or CostModel(), clock or VirtualClock())


def start(slot: int, n_past: int = 0, sampling: SamplingParams = GREEDY) -> Start:
    return Start(slot, Task(id=slot, prompt=(), sampling=sampling), n_past)


def prompt(slot: int, tokens: list[int], pos: int = 0, copy_to: tuple[int, ...] = (), output: bool = True) -> Entry:
    return Entry(slot, slot, EntryKind.PROMPT, tokens, pos, output, copy_to)


def run(backend: SimulatedBackend, *entries: Entry, starts: tuple[Start, ...] = ()) -> Outcome:
    return backend.run(Plan(iteration=1, starts=starts, entries=entries))


def test_batch_takes_overhead_plus_each_tokens_cost_at_its_depth() -> None:
    clock = VirtualClock()
    backend = make_backend(cost=CostModel(alpha=1.0, beta=0.5, batch=10.0, decode=3.0), clock=clock)
    run(backend, prompt(0, [1, 2]), starts=(start(0),))
    assert clock.now() == 10 + 1.0 + 1.5
    run(backend, Entry(0, 0, EntryKind.GENERATION, [3], 2, True), prompt(1, [4]), starts=(start(1),))
    assert clock.now() == 12.5 + 10 + (3.0 + 2 * 0.5) + 1.0


def test_published_cold_prompt_takes_about_22_seconds_alone() -> None:
    """The fit's own statement: 18,000 tokens from depth 0 in 22.2 s less 0.49 s of admission."""
    assert CostModel().entry_s(prompt(0, [0] * 18_000)) == pytest.approx(21.7, abs=0.1)


def test_empty_plan_takes_no_time() -> None:
    clock = VirtualClock()
    assert make_backend(cost=CostModel(batch=5.0), clock=clock).run(Plan(iteration=1, starts=(start(0),))) == Outcome()
    assert clock.now() == 0


def test_chunks_and_company_do_not_change_the_token() -> None:
    alone = run(make_backend(), prompt(0, [5, 6, 7, 8]), starts=(start(0),)).tokens[0]
    chunked = make_backend()
    run(chunked, prompt(0, [5, 6], output=False), prompt(1, [9]), starts=(start(0), start(1)))
    assert run(chunked, prompt(0, [7, 8], 2)).tokens[0] == alone


def test_trim_keeps_the_prefix_and_drops_the_rest() -> None:
    backend = make_backend()
    first = run(backend, prompt(0, [5, 6, 7]), starts=(start(0),)).tokens[0]
    other = run(backend, prompt(0, [9], 2), starts=(start(0, n_past=2),)).tokens[0]
    again = run(backend, prompt(0, [7], 2), starts=(start(0, n_past=2),)).tokens[0]
    assert other != first
    assert again == first


def test_child_gets_the_parents_cells_and_goes_on_by_itself() -> None:
    backend = make_backend()
    plan = Plan(1, starts=(start(0),), entries=(prompt(0, [5, 6], copy_to=(1,)),), child_starts=(start(1),))
    tokens = backend.run(plan).tokens
    assert tokens[0] == tokens[1]
    step = [Entry(slot, slot, EntryKind.GENERATION, [tokens[slot]], 2, True) for slot in (0, 1)]
    tokens = run(backend, *step).tokens
    assert tokens[0] == tokens[1]


def test_seed_counts_when_not_greedy() -> None:
    drawn = {
        run(make_backend(), prompt(0, [5, 6]), starts=(start(0, sampling=SamplingParams(seed=seed)),)).tokens[0]
        for seed in range(8)
    }
    assert len(drawn) > 1


@pytest.mark.parametrize(("kv_mode", "fits", "too_much"), [("split", 2048, 2049), ("unified", 4096, 4097)])
def test_full_cache_is_reported_and_writes_nothing(kv_mode: KvMode, fits: int, too_much: int) -> None:
    backend = make_backend(kv_mode=kv_mode)
    with pytest.raises(KvFull):
        run(backend, prompt(0, [1] * too_much), starts=(start(0),))
    assert 0 in run(backend, prompt(0, [1] * fits)).tokens


def test_unified_pool_is_shared_by_all_slots() -> None:
    backend = make_backend(kv_mode="unified")
    run(backend, prompt(0, [1] * 3000), starts=(start(0), start(1)))
    with pytest.raises(KvFull):
        run(backend, prompt(1, [1] * 1097))
    backend.clear(0)
    assert 1 in run(backend, prompt(1, [1] * 1097)).tokens


@pytest.mark.parametrize("entry", [prompt(0, [1], 3), prompt(0, [N_VOCAB]), prompt(0, [-1])])
def test_gap_and_unknown_token_are_refused(entry: Entry) -> None:
    with pytest.raises(BackendError):
        run(make_backend(), entry, starts=(start(0),))


@given(st.text())
def test_text_survives_tokenize_and_detokenize(text: str) -> None:
    backend = make_backend()
    assert backend.detokenize(backend.tokenize(text, add_special=False)) == text


def test_special_tokens_are_parsed_on_demand_and_have_no_piece() -> None:
    backend = make_backend()
    assert backend.tokenize("</s> the", add_special=True)[:2] == [BOS, EOS]
    assert EOS not in backend.tokenize("</s>", add_special=False, parse_special=False)
    assert backend.piece(EOS) == b""
    assert backend.piece(backend.tokenize(" the", add_special=False)[0]) == b" the"


@pytest.mark.parametrize(("kv_mode", "n_ctx", "n_ctx_slot"), [("split", 2048, 1024), ("unified", 2048, 2048)])
def test_context_is_padded_and_divided(kv_mode: KvMode, n_ctx: int, n_ctx_slot: int) -> None:
    info = make_backend(n_ctx=2000, kv_mode=kv_mode).info
    assert (info.n_ctx, info.n_ctx_slot, info.backend) == (n_ctx, n_ctx_slot, "simulated")
