"""A second, smaller model with the same vocabulary, that guesses what may come next; for all slots in one batch at a time.

One of the modules that import the binding. It keeps a memory of its own with the texts of the slots that were asked for. What the
target accepts of its guesses is in there already; the rest, and prompts, are caught up on when it is asked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cyllama.llama import llama_cpp

from engine.backends.base import BackendOptions, ModelError
from engine.scheduler.plan import Entry, Outcome, Plan, Wish

log = logging.getLogger("engine")

FIRST_COMPARED = 5  # token ids below it may differ, as in llama-server
MOST_EXTRA = 128  # tokens by which vocabularies may differ in size, as in llama-server
NEEDS_TARGET = ("dflash", "eagle3", "dspark")  # they read hidden states of the target, see docs/drafts.md


def why_unfit(model: Any, texts: Sequence[bytes]) -> str:
    """Why a loaded model cannot draft for a target with these token texts, in a sentence; nothing when it can."""
    architecture = str(model.metadata().get("general.architecture", ""))
    if architecture.startswith(NEEDS_TARGET):
        return (
            f"a draft of the architecture {architecture} reads hidden states of its target, which the binding does not hand out"
        )
    if model.is_recurrent() or model.is_hybrid():
        return "its memory cannot take guessed tokens back (it is recurrent)"
    vocab = model.get_vocab()
    n_vocab = int(vocab.n_vocab)
    if abs(n_vocab - len(texts)) > MOST_EXTRA:
        return f"its vocabulary has {n_vocab} tokens and the target's {len(texts)}"
    for token in range(FIRST_COMPARED, min(n_vocab, len(texts))):
        if vocab.token_to_bytes(token, 0, True) != texts[token]:
            return f"token {token} is another one in its vocabulary than in the target's"
    return ""


@dataclass(slots=True)
class _Held:
    """What the draft model's memory has of a slot: the first `n` tokens of a task's text, and `guess` behind them."""

    task_id: int = -1
    n: int = 0
    guess: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Asked:
    """A wish on its way: where the text behind it stands, and what was guessed."""

    slot: int
    n: int
    pos: int
    found: list[int] = field(default_factory=list)
    row: int = -1


class DraftModel:
    """Called by the loop thread alone. Raises ModelError when there is no room for its context."""

    def __init__(self, model: Any, options: BackendOptions, eog: frozenset[int], n_vocab: int) -> None:
        self._eog, self._n_vocab = eog, n_vocab
        self._context = _make_context(model, options)
        self._n_ctx = min(int(self._context.n_ctx_seq), int(model.n_ctx_train))
        self._n_batch = int(self._context.n_batch)
        self._batch = llama_cpp.LlamaBatch(n_tokens=self._n_batch, embd=0, n_seq_max=1)
        self._sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        self._sampler.add_top_k(1)
        self._sampler.add_greedy()
        self._held = [_Held() for _ in range(options.n_slots)]

    def follow(self, plan: Plan) -> None:
        """What a plan changes in the memories of slots; of a new task the beginning that its slot keeps is kept here too."""
        for shift in plan.shifts:
            self.forget(shift.slot)
        for start in (*plan.starts, *plan.child_starts):
            held = self._held[start.slot]
            self._cut(start.slot, min(held.n, start.n_past))
            held.task_id = start.task.id

    def forget(self, slot: int) -> None:
        self._cut(slot, 0)

    def _cut(self, slot: int, n: int) -> None:
        held = self._held[slot]
        self._context.memory_seq_rm(slot, n, -1)
        held.n = n
        held.guess.clear()

    def draft(self, plan: Plan, outcome: Outcome) -> dict[int, tuple[int, ...]]:
        """Answers to the plan's wishes, behind what its batch has just generated; none yet where much is to catch up on."""
        entries = {entry.slot: entry for entry in plan.entries}
        try:
            asked = self._catch_up(plan.wishes, entries, outcome)
            self._guess(asked)
        except (ValueError, RuntimeError, InterruptedError) as error:
            log.warning("The draft model failed, its memory is emptied: %s", error)
            for slot in range(len(self._held)):
                self.forget(slot)
            return {}
        return {each.slot: tuple(each.found) for each in asked if each.found}

    def _catch_up(self, wishes: Sequence[Wish], entries: dict[int, Entry], outcome: Outcome) -> list[_Asked]:
        """Decodes what the texts have and the memory has not, a batch of it at most; slots whose text is complete."""
        self._batch.clear()
        ready, room, row = [], self._n_batch, 0
        for wish in wishes:
            drawn = _drawn(wish.slot, outcome)
            entry = entries.get(wish.slot)
            if not drawn or entry is None or entry.task_id != wish.task_id:
                continue
            behind = [*entry.tokens[: len(drawn)], drawn[-1]]
            length = entry.pos + len(behind)
            if length + wish.n > self._n_ctx or max(behind) >= self._n_vocab:
                continue
            new = self._missing(wish, entry.pos, behind)[:room]
            held = self._held[wish.slot]
            complete = held.n + len(new) == length
            for place, token in enumerate(new):
                self._batch.add(token, held.n + place, [wish.slot], complete and place == len(new) - 1)
            held.n += len(new)
            room -= len(new)
            row += len(new)
            if complete and new:
                ready.append(_Asked(wish.slot, wish.n, length, row=row - 1))
        if row:
            self._context.decode(self._batch)
        return ready

    def _missing(self, wish: Wish, pos: int, behind: list[int]) -> list[int]:
        """Tokens of the text from `held.n` on, after guesses that proved wrong were cut and right ones counted."""
        held = self._held[wish.slot]
        if held.task_id != wish.task_id:
            self.forget(wish.slot)
            held.task_id = wish.task_id
        if held.n >= pos:
            known = behind[held.n - pos :]
            right = 0
            # one token is always left to decode: its row is what the next guess is drawn from
            while right < min(len(held.guess), len(known) - 1) and held.guess[right] == known[right]:
                right += 1
            self._cut(wish.slot, held.n + right)
            return behind[held.n - pos :]
        self._cut(wish.slot, held.n)
        return [*wish.cells[held.n : pos], *behind]

    def _guess(self, asked: list[_Asked]) -> None:
        """One token for each slot a batch, each from its most probable continuation."""
        while asked_now := [each for each in asked if each.row >= 0]:
            self._batch.clear()
            row = 0
            for each in asked_now:
                token = int(self._sampler.sample(self._context, each.row))
                each.row = -1
                if token in self._eog or token >= self._n_vocab:
                    continue
                each.found.append(token)
                if len(each.found) < each.n:
                    self._batch.add(token, each.pos + len(each.found) - 1, [each.slot], True)
                    each.row = row
                    row += 1
            if row:
                self._context.decode(self._batch)
                for each in asked_now:
                    if each.row >= 0:
                        self._held[each.slot].guess.append(each.found[-1])

    def close(self) -> None:
        self._sampler.close()
        self._batch.close()
        self._context.close()


def _drawn(slot: int, outcome: Outcome) -> Sequence[int]:
    if slot in outcome.errors:
        return ()
    if outcome.runs is not None and slot in outcome.runs:
        return outcome.runs[slot]
    token = outcome.tokens.get(slot)
    return () if token is None else (token,)


def _make_context(model: Any, options: BackendOptions) -> Any:
    threads = options.n_threads or len(os.sched_getaffinity(0))
    params = llama_cpp.LlamaContextParams()
    params.n_ctx = options.n_ctx
    params.n_seq_max = options.n_slots
    params.kv_unified = options.kv_mode == "unified"
    params.n_batch = max(options.n_batch, options.n_slots)
    params.n_ubatch = options.n_ubatch
    params.n_threads = threads
    params.n_threads_batch = options.n_threads_batch or threads
    params.n_outputs_max = options.n_slots
    params.swa_full = True  # guesses are taken back one by one, and a window would have moved on meanwhile
    try:
        return llama_cpp.LlamaContext(model=model, params=params, verbose=False)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ModelError(f"llama.cpp cannot make a context for the draft model: {error}.") from error
