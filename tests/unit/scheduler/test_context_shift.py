"""Context shift: which cells go, and that books and memory agree whatever happens between."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.plan import FinishReason, Shift
from tests.unit.scheduler.harness import A, Bench, FakeModel
from tests.unit.scheduler.test_properties import policies

N_CTX = 16


def bench(slots: int = 2, **more: Any) -> Bench:
    return Bench.make(slots, 8, **{"n_ctx_slot": N_CTX, "n_ctx": N_CTX * slots, "context_shift": True, **more})


def shifts(made: Bench) -> list[Shift]:
    return [shift for plan in made.plans for shift in plan.shifts]


def alone(prompt: list[int], n: int, keep: int, discard: int) -> list[int]:
    """The rule by itself: what a task generates in a slot of its own."""
    model = FakeModel(1)
    cells = model.cells[0]
    cells.extend(prompt)
    tokens = [model.next_token(0)]
    while len(tokens) < n:
        if len(cells) + 1 >= N_CTX:
            kept = min(keep, N_CTX - 4)
            left = len(cells) - kept
            del cells[kept : kept + min(discard or left // 2, left)]
        cells.append(tokens[-1])
        tokens.append(model.next_token(0))
    return tokens


def test_a_full_slot_forgets_half_of_what_is_behind_the_kept() -> None:
    made = bench()
    task = made.submit(0, 9, n_predict=12, n_keep=3)
    prompt = made.scheduler._slots[0].prompt
    made.run()
    assert shifts(made) == [Shift(0, 3, 6)]
    assert made.outputs[task] == alone(prompt, 12, 3, 0)
    ended = made.ended[task]
    assert (ended.reason, ended.truncated, ended.n_generated) == (FinishReason.LIMIT, True, 12)


def test_a_slot_that_never_fills_is_not_truncated() -> None:
    made = bench()
    task = made.submit(0, 9, n_predict=6)
    made.run()
    assert not shifts(made)
    assert not made.ended[task].truncated


def test_without_the_option_a_full_slot_ends_its_task() -> None:
    made = bench(context_shift=False)
    task = made.submit(0, 9, n_predict=-1)
    made.run()
    ended = made.ended[task]
    assert (ended.reason, ended.truncated, ended.n_generated) == (FinishReason.LIMIT, True, 7)


def test_generation_goes_on_for_as_long_as_it_may() -> None:
    made = bench()
    task = made.submit(0, 9, n_predict=500, n_discard=5)
    made.run()
    assert made.ended[task].n_generated == 500
    assert {shift.discard for shift in shifts(made)} == {5}
    assert all(len(cells) < N_CTX for cells in made.model.cells)


def test_what_is_to_be_kept_leaves_room_for_four() -> None:
    made = bench()
    made.submit(0, 15, n_predict=5, n_keep=15)
    made.run()
    assert {shift.keep for shift in shifts(made)} == {12}


def test_a_prompt_that_does_not_fit_is_refused_as_ever() -> None:
    made = bench()
    task = made.submit(0, 16)
    made.run()
    assert "exceeds the available context size" in made.ended[task].error


def test_a_slot_of_another_group_is_shifted_when_its_turn_comes() -> None:
    made = bench(policy={"prefill_order": "rotating"})
    first, second = made.submit(0, 8, n_predict=40), made.submit(1, 8, n_predict=40, group=A)
    made.run()
    assert made.ended[first].n_generated == made.ended[second].n_generated == 40
    assert {shift.slot for shift in shifts(made)} == {0, 1}


def test_a_task_that_ends_with_a_shift_to_come_leaves_the_kept_cells_alone() -> None:
    made = bench()
    task = made.submit(0, 9, n_predict=-1, n_keep=4)
    while made.scheduler._slots[0].shift is None:
        made.step()
    finished = made.scheduler.cancel(task, made.now)
    assert finished is not None
    assert finished.truncated
    assert len(made.scheduler._slots[0].cells) == 4
    again = made.submit(0, prompt=[*made.model.cells[0][:4], 7, 7], n_predict=1)
    made.run()
    assert made.ended[again].n_cached == 4
    assert not shifts(made)


def test_a_failed_batch_leaves_the_kept_cells_alone() -> None:
    made = bench()
    task = made.submit(0, 9, n_predict=-1, n_keep=4)
    while made.scheduler._slots[0].shift is None:
        made.step()
    made.fail()
    assert made.ended[task].reason is FinishReason.ERROR
    assert len(made.scheduler._slots[0].cells) == 4


def test_cells_that_slots_share_are_never_moved() -> None:
    """In a pool a child's cells are its parent's too: moving them for one would move them for both."""
    for kv_mode, wanted in (("unified", 7), ("split", 20)):
        made = bench(3, kv_mode=kv_mode)
        task = made.submit(0, 9, n_predict=20, children=(900,))
        made.run()
        assert {made.ended[task].n_generated, made.ended[900].n_generated} == {wanted}
        after = made.submit(0, 9, n_predict=20)  # nothing of the shared cells is kept
        made.run()
        assert made.ended[after].n_generated == 20


tasks = st.lists(
    st.tuples(
        st.integers(0, 8),  # comes before this step
        st.lists(st.integers(0, 5), min_size=1, max_size=N_CTX - 1),
        st.integers(1, 60),
        st.integers(0, 20),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(load=tasks, policy=policies, kv_mode=st.sampled_from(["split", "unified"]), others=st.sampled_from([None, A]))
def test_outputs_are_those_of_each_task_alone(load: list[Any], policy: dict[str, Any], kv_mode: str, others: Any) -> None:
    made = bench(3, kv_mode=kv_mode, policy=policy)
    wanted: dict[int, list[int]] = {}
    for step in range(4000):
        for place, (at, prompt, n, keep, discard) in enumerate(load):
            if at == step:
                more = {"group": others} if others is not None and place % 2 else {}
                task = made.submit(-1, prompt=prompt, n_predict=n, n_keep=keep, n_discard=discard, **more)
                wanted[task] = alone(prompt, n, keep, discard)
        if step > 8 and not made.scheduler.has_work:
            break
        made.step()
        for slot, cells in zip(made.scheduler._slots, made.model.cells, strict=True):
            known = list(cells)
            if slot.shift is not None:
                del known[slot.shift.keep : slot.shift.keep + slot.shift.discard]
            assert slot.cells == known[: len(slot.cells)]
            assert len(cells) < N_CTX
    assert made.outputs == wanted
