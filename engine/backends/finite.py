"""Rows of logits that are no numbers: found without reading them, since the binding hands a row out as a list of Python floats.

It imports the binding, since it has chains of its own: `samplers` is about wishes.

A state that is not a number makes the whole row so. llama.cpp draws from such a row all the same, always the same token for one
chain, and under a grammar it ends the process. So a task's first row is looked at before the draw, and each row under a grammar;
other rows, ever more rarely, when the drawn token repeats the one before or ends the text, as such a row makes it do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Any

from cyllama.llama import llama_cpp

from engine.scheduler.plan import Entry

NOT_FINITE = "the model's output for this task is not a number: its weights, or its cells in the KV cache, hold NaN or infinity"
_FAR_BELOW = -1e30


class NotFinite(ValueError):
    """Raised in place of a draw."""

    def __init__(self) -> None:
        super().__init__(NOT_FINITE)


def all_finite(rows: Iterable[Iterable[float]]) -> bool:
    return math.isfinite(sum(map(sum, rows)))


def has_numbers(row: Sequence[float]) -> bool:
    """Of a row that was drawn from in the graph: tokens that a task has banned there are minus infinity."""
    return sum(row) < math.inf and max(row) > -math.inf


class Probe:
    """Looks at a row by two greedy draws: 75 microseconds for 16,000 tokens of vocabulary.

    A greedy draw begins with token 0 and moves on to what is greater. With token 0 put far below, only a row in which nothing is
    greater (NaN throughout, or minus infinity) leaves it there; with the winner put far below too, only infinity wins again. What
    it does not see: NaN at some tokens alone, which takes a row of the output weights, not a state, that is not a number.

    A row that was drawn from `in_graph` answers every chain with that draw, and reading it takes 20 milliseconds for 262,000
    tokens. But the draw itself tells: llama.cpp's argmax stays at the first token where nothing compares as greater, and goes on
    to the last where all are alike. Only a row with one of these two as its draw is read.
    """

    def __init__(self, n_vocab: int, *, in_graph: bool = False) -> None:
        self._n_vocab, self._in_graph = n_vocab, in_graph
        self._greedy = self._chain(0)

    def _chain(self, *below: int) -> Any:
        chain = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        chain.add_logit_bias(self._n_vocab, [(token, _FAR_BELOW) for token in below])
        chain.add_greedy()
        return chain

    def is_finite(self, context: Any, row: int) -> bool:
        drawn = context.sampled_token_ith(row) if self._in_graph else None
        if drawn is not None:
            return drawn not in (0, self._n_vocab - 1) or has_numbers(context.get_logits_ith(row))
        best: int = self._greedy.sample(context, row)
        if best == 0:
            return False
        second = self._chain(0, best)
        try:
            return int(second.sample(context, row)) != best
        finally:
            second.close()

    def close(self) -> None:
        self._greedy.close()


class CheckedSampler:
    """In a chain's place until its first draw, or for good: raises NotFinite where llama.cpp would draw nonsense or abort."""

    def __init__(self, chain: Any, probe: Probe, place: MutableSequence[Any], slot: int, *, always: bool) -> None:
        self.chain, self._probe, self._place, self._slot, self._always = chain, probe, place, slot, always
        self.is_new = True  # nothing was drawn yet

    def sample(self, context: Any, row: int) -> int:
        if not self._probe.is_finite(context, row):
            raise NotFinite
        self.is_new = False
        if not self._always:
            self._place[self._slot] = self.chain  # from now on without a layer between
        token: int = self.chain.sample(context, row)
        return token

    def close(self) -> None:
        self.chain.close()


class Sieve:
    """Takes nonsense out of what a batch gave, and the cells that it came from out of the memory."""

    def __init__(
        self,
        context: Any,
        samplers: MutableSequence[Any],
        n_vocab: int,
        eog: frozenset[int],
        *,
        unified: bool,
        in_graph: bool = False,
    ) -> None:
        self.probe = Probe(n_vocab, in_graph=in_graph)
        self._context, self._samplers, self._eog, self._unified = context, samplers, eog, unified
        self._runs: dict[int, tuple[int, int, int]] = {}  # by slot: position, length of its run, repetitions

    def checked(self, chain: Any, slot: int, *, always: bool) -> CheckedSampler:
        self._runs.pop(slot, None)
        return CheckedSampler(chain, self.probe, self._samplers, slot, always=always)

    def look_again(
        self,
        outputs: Iterable[tuple[int, Entry]],
        tokens: dict[int, int],
        errors: dict[int, str],
        *,
        all_doubtful: bool = False,
    ) -> None:
        """Takes back what was drawn from rows that are no numbers. One such row makes all of the batch doubtful."""
        all_doubtful = all_doubtful or NOT_FINITE in errors.values()
        for row, entry in outputs:
            for slot in (entry.slot, *entry.copy_to):
                token = tokens.get(slot)
                repeats = token == entry.tokens[-1] and self._is_due(slot, entry)
                doubtful = all_doubtful or repeats or token in self._eog
                if token is not None and doubtful and not self.probe.is_finite(self._context, row):
                    del tokens[slot]
                    errors[slot] = NOT_FINITE

    def _is_due(self, slot: int, entry: Entry) -> bool:
        """A text may well repeat its tokens: what is looked at is the 1st, 2nd, 4th, 8th and so on of all its repetitions, and
        each that is the 4th, 8th and so on in a row."""
        position = entry.pos + len(entry.tokens)
        before, length, repetitions = self._runs.get(slot, (-1, 0, 0))
        length = length + 1 if before == position - 1 else 1
        repetitions += 1
        self._runs[slot] = position, length, repetitions
        return _is_power_of_two(repetitions) or (length >= 4 and _is_power_of_two(length))

    def drop(self, entries: Sequence[Entry], errors: dict[int, str], alone: Callable[[Entry], None]) -> frozenset[int]:
        """Slots whose cells are gone: those in error, and in a unified cache prompts that may be spoiled without a sign of it.

        In a unified cache llama.cpp's attention multiplies by zero what it masks, and NaN stays NaN: a prompt that is no number
        can spoil what shares a batch with it. So rows that are none are computed once more, each `alone`, which puts
        NOT_FINITE into `errors` where it stays so; what has no row yet starts again.
        """
        hit = {slot for slot, error in errors.items() if error == NOT_FINITE}
        if not hit or not self._unified:
            return self._cleared(hit)
        again = [entry for entry in entries if entry.slot in hit]
        for entry in again:
            self._context.memory_seq_rm(entry.slot, entry.pos, -1)
        unsure = {slot for slot, sampler in enumerate(self._samplers) if isinstance(sampler, CheckedSampler) and sampler.is_new}
        lost = self._cleared(unsure - hit)
        for entry in again if len(entries) > 1 else ():
            slots = {slot for slot in (entry.slot, *entry.copy_to) if errors.get(slot) == NOT_FINITE}
            for slot in slots:
                del errors[slot]
            alone(entry)
            self._cleared(slot for slot in slots if errors.get(slot) == NOT_FINITE)
        return lost | self._cleared({slot for slot, error in errors.items() if error == NOT_FINITE})

    def _cleared(self, slots: Iterable[int]) -> frozenset[int]:
        slots = frozenset(slots)
        for slot in slots:
            self._context.memory_seq_rm(slot, -1, -1)
        return slots

    def close(self) -> None:
        self.probe.close()


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0
