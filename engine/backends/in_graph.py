"""Greedy draws made inside llama.cpp's graph, where a row of logits is long.

It imports the binding, as `samplers` and `finite` do. Drawing from 262,000 logits outside takes half a millisecond for each slot,
with the GIL held; inside it is one more node of the graph. Attaching or detaching a chain makes llama.cpp plan its graphs anew,
which takes about as long as a batch: so a slot keeps its chain while its tasks want the same one, and short answers, and models
of small vocabularies, are drawn outside.

A ban costs a pass over the row for each slot, half a millisecond a batch for four. The usual one, of tokens that end a text, is
hardly ever needed: it stays outside, and a row whose draw is banned is read and drawn from again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.backends.finite import NotFinite, has_numbers
from engine.backends.samplers import SamplerContext, make_graph_chain, make_sampler, remembers
from engine.scheduler.plan import Start
from engine.scheduler.task import VECTOR_TYPES, SamplingParams

LEAST_VOCABULARY = 65_536  # tokens
LEAST_ANSWER = 32  # tokens: fewer do not earn back what planning the graphs anew costs
MOST_REDRAWN = 8  # of one task: each takes ten milliseconds for 262,000 tokens, so a text that wants to end is drawn outside
_Key = tuple[bool, tuple[tuple[int, float], ...]]  # whether the chain bans ends of text, logit_bias


@dataclass(slots=True)
class _Held:
    """What is attached to a slot; `ignore_eos` is the present task's wish."""

    key: _Key
    chain: Any
    ignore_eos: bool


class Redrawn:
    """In a chain's place for a task that ignores ends of text, which the chain in the graph knows nothing of.

    After MOST_REDRAWN of them it draws from what `outside` gives.
    """

    def __init__(self, chain: Any, banned: frozenset[int], outside: Callable[[], Any]) -> None:
        self._chain, self._banned, self._outside, self._redrawn = chain, banned, outside, 0

    def sample(self, context: Any, row: int) -> int:
        token: int = self._chain.sample(context, row)
        if token not in self._banned:
            return token
        token = self._best_of(context.get_logits_ith(row))
        self._redrawn += 1
        if self._redrawn == MOST_REDRAWN:
            self._chain = self._outside()
        return token

    def _best_of(self, logits: list[float]) -> int:
        if not has_numbers(logits):
            raise NotFinite
        for token in self._banned:
            logits[token] = -math.inf
        return logits.index(max(logits))

    def close(self) -> None:
        """Neither chain is its own."""


class InGraph:
    """Which slots draw in the graph. llama.cpp allows one output a sequence and batch for those."""

    def __init__(self, context: Any, sampling: SamplerContext) -> None:
        self._context, self._sampling = context, sampling
        self._off = sampling.n_vocab < LEAST_VOCABULARY
        self._attached: dict[int, _Held] = {}
        self._drafts = False  # there were some since the last task began

    @property
    def is_off(self) -> bool:
        return self._off

    def enter(self, start: Start) -> Any | None:
        """The chain that draws for the task in its slot's graph from now on, or None: then nothing is attached to the slot."""
        if self._off:
            return None
        slot, wish = start.slot, start.task.sampling
        drafts, self._drafts = self._drafts, False
        if drafts or remembers(wish) or wish.n_probs or start.task.group.type in VECTOR_TYPES:
            self.leave(slot)
            return None
        key = wish.ignore_eos and bool(wish.logit_bias), wish.logit_bias
        held = self._attached.get(slot)
        if held is None or held.key != key:
            self.leave(slot)
            is_long = not 0 <= start.task.n_predict < LEAST_ANSWER
            held = self._attach(slot, key) if is_long else None
        if held is None:
            return None
        held.ignore_eos = wish.ignore_eos
        if not wish.ignore_eos or key[0]:
            return held.chain
        return Redrawn(held.chain, self._sampling.eog, lambda: self.outside(slot))

    def outside(self, slot: int) -> Any | None:
        """A chain outside that draws the same, for a slot with one in the graph, which is detached. None for any other slot."""
        held = self._attached.get(slot)
        if held is None:
            return None
        self.leave(slot)
        wish = SamplingParams(temperature=0.0, ignore_eos=held.ignore_eos, logit_bias=held.key[1])
        return make_sampler(wish, self._sampling, ())

    def outside_for_draft(self, slot: int) -> Any | None:
        """As `outside`, for a task that has a draft, and so several rows in a batch."""
        self._drafts = not self._off
        return self.outside(slot)

    def _attach(self, slot: int, key: _Key) -> _Held | None:
        bans_ends, bias = key
        chain = make_graph_chain(SamplingParams(temperature=0.0, ignore_eos=bans_ends, logit_bias=bias), self._sampling)
        if not self._context.set_sampler(slot, chain):
            self._off = True  # a model split over devices by tensor: no chain can be attached
            return None
        held = self._attached[slot] = _Held(key, chain, bans_ends)
        return held

    def leave(self, slot: int) -> None:
        held = self._attached.pop(slot, None)
        if held is not None:
            self._context.set_sampler(slot, None)
            held.chain.close()

    def close(self) -> None:
        for slot in list(self._attached):
            self.leave(slot)
