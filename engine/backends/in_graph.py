"""Greedy draws made inside llama.cpp's graph, where a row of logits is long.

It imports the binding, as `samplers` and `finite` do. Drawing from 262,000 logits outside takes half a millisecond for each slot,
with the GIL held; inside it is one more node of the graph. Attaching or detaching a chain makes llama.cpp plan its graphs anew,
which takes about as long as a batch: so a slot keeps its chain while its tasks want the same one, and short answers, and models
of small vocabularies, are drawn outside.
"""

from __future__ import annotations

from typing import Any

from engine.backends.samplers import SamplerContext, make_graph_chain, make_sampler, remembers
from engine.scheduler.plan import Start
from engine.scheduler.task import VECTOR_TYPES, SamplingParams

LEAST_VOCABULARY = 65_536  # tokens
_Key = tuple[bool, tuple[tuple[int, float], ...]]  # ignore_eos, logit_bias
LEAST_ANSWER = 32  # tokens: fewer do not earn back what planning the graphs anew costs


class InGraph:
    """Which slots draw in the graph. llama.cpp allows one output a sequence and batch for those."""

    def __init__(self, context: Any, sampling: SamplerContext) -> None:
        self._context, self._sampling = context, sampling
        self._off = sampling.n_vocab < LEAST_VOCABULARY
        self._attached: dict[int, tuple[_Key, Any]] = {}  # by slot: what the chain does, the chain
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
        key = wish.ignore_eos, wish.logit_bias
        held = self._attached.get(slot)
        if held is not None and held[0] == key:
            return held[1]
        self.leave(slot)
        is_long = not 0 <= start.task.n_predict < LEAST_ANSWER
        return self._attach(slot, key, start) if is_long else None

    def outside(self, slot: int) -> Any | None:
        """A chain outside that draws the same, for a slot that has one in the graph, which is detached: its task has a draft, and
        so several rows in a batch. None for any other slot."""
        self._drafts = not self._off
        held = self._attached.get(slot)
        if held is None:
            return None
        ignore_eos, bias = held[0]
        self.leave(slot)
        return make_sampler(SamplingParams(temperature=0.0, ignore_eos=ignore_eos, logit_bias=bias), self._sampling, ())

    def _attach(self, slot: int, key: _Key, start: Start) -> Any | None:
        chain = make_graph_chain(start.task.sampling, self._sampling)
        if not self._context.set_sampler(slot, chain):
            self._off = True  # a model split over devices by tensor: no chain can be attached
            return None
        self._attached[slot] = key, chain
        return chain

    def leave(self, slot: int) -> None:
        held = self._attached.pop(slot, None)
        if held is not None:
            self._context.set_sampler(slot, None)
            held[1].close()

    def close(self) -> None:
        for slot in list(self._attached):
            self.leave(slot)
