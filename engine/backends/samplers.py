"""One chain of llama.cpp's samplers for each task, in llama-server's order, without the links that would do nothing.

Beside `llama` and `finite` the only module that imports the binding. With a grammar the chain must never be left without a token
that fits: llama.cpp ends the process then. So bans are heavy penalties there, what the grammar rules out is cut away right behind
it, and `check_grammar` refuses grammars that could come to a dead end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from cyllama.llama import llama_cpp

from engine.grammar import check_terminals
from engine.scheduler.plan import TokenProbs
from engine.scheduler.task import SamplingParams

RANDOM_SEED = 0xFFFFFFFF  # llama.cpp draws a seed of its own for this one
MIROSTAT_M = 100  # tokens that mirostat's estimate looks at, as in llama-server
NEVER = -1e9  # a ban that yields where a grammar allows nothing else
ALMOST_NOTHING = 1e-30
MOST_SHARED = 16


@dataclass(frozen=True, slots=True)
class SamplerContext:
    """What chains need of a loaded model. `n_ctx` bounds the windows of penalties; `spells_bytes`: tokens can spell any text.

    `shared`: chains that remember nothing, by what they do.
    """

    vocab: Any
    n_vocab: int
    eog: frozenset[int]
    n_ctx: int
    spells_bytes: bool
    shared: dict[object, llama_cpp.LlamaSampler] = field(default_factory=dict, compare=False)


def spells_bytes(texts: Sequence[bytes]) -> bool:
    """Whether the vocabulary has a token for each byte of UTF-8 text."""
    single = {text[0] for text in texts if len(text) == 1}
    return single.issuperset([*range(0x01, 0xC0), *range(0xC2, 0xF5)])


def make_sampler(wish: SamplingParams, context: SamplerContext, prompt: Sequence[int]) -> llama_cpp.LlamaSampler:
    """Raises ValueError when a wish cannot be met: a bias on an unknown token, a grammar that cannot be used.

    A chain that remembers nothing is one for all tasks that want it. Each chain has a buffer of twelve bytes for each token of
    the vocabulary: one that was just used is near the processor, and drawing with it takes two thirds of the time.
    """
    if remembers(wish):
        return _made(wish, context, prompt)
    key = (wish.ignore_eos, wish.logit_bias)
    chain = context.shared.pop(key, None)
    if chain is None:
        chain = _made(wish, context, prompt)
        while len(context.shared) >= MOST_SHARED:
            del context.shared[next(iter(context.shared))]
    context.shared[key] = chain
    return chain


def remembers(wish: SamplingParams) -> bool:
    """Whether a draw depends on more than its row: on chance, on the text so far, or on a grammar."""
    greedy = wish.temperature <= 0 and ("temperature" in wish.samplers or bool(wish.mirostat))
    penalties = wish.repeat_penalty != 1 or wish.presence_penalty or wish.frequency_penalty
    others = wish.dry_multiplier or wish.mirostat or wish.xtc_probability or wish.typical_p != 1
    return bool(not greedy or wish.grammar or penalties or others)


def make_graph_chain(wish: SamplingParams, context: SamplerContext) -> llama_cpp.LlamaSampler:
    """Of links that llama.cpp can run in its graph, for a wish that remembers nothing."""
    builder = _Builder(wish, context, ())
    builder.biases()
    builder.chain.add_greedy()
    return builder.chain


def _made(wish: SamplingParams, context: SamplerContext, prompt: Sequence[int]) -> llama_cpp.LlamaSampler:
    builder = _Builder(wish, context, prompt)
    builder.biases()
    builder.grammar()
    tempered = "temperature" in wish.samplers or wish.mirostat
    greedy = wish.temperature <= 0 and bool(tempered)
    if wish.mirostat and not greedy:
        builder.mirostat()
        return builder.chain
    for name in wish.samplers if not wish.mirostat else ():
        if greedy and name in _NO_MATTER_WHEN_GREEDY:
            continue
        _LINKS[name](builder)
    builder.draw(greedy)
    return builder.chain


class _Builder:
    def __init__(self, wish: SamplingParams, context: SamplerContext, prompt: Sequence[int]) -> None:
        self._wish, self._context, self._prompt = wish, context, prompt
        self._seed = RANDOM_SEED if wish.seed is None else wish.seed & 0xFFFFFFFF
        self._n_links = 0
        self.chain = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())

    def biases(self) -> None:
        wish, context = self._wish, self._context
        biases = list(wish.logit_bias)
        if wish.ignore_eos:
            biases += [(token, -math.inf) for token in sorted(context.eog)]
        for token, _ in biases:
            if not 0 <= token < context.n_vocab:
                raise ValueError(f"logit_bias names token {token}, the vocabulary has {context.n_vocab}")
        if wish.grammar:
            biases = [(token, max(bias, NEVER)) for token, bias in biases]
        if biases:
            self.chain.add_logit_bias(context.n_vocab, biases)
            self._n_links += 1

    def grammar(self) -> None:
        if self._wish.grammar:
            self.chain.add_grammar(self._context.vocab, self._wish.grammar, "root")
            _last_link(self.chain, self._n_links)
            self.chain.add_min_p(ALMOST_NOTHING, 0)
            self._n_links += 2

    def mirostat(self) -> None:
        wish = self._wish
        self.chain.add_temp(wish.temperature)
        if wish.mirostat == 1:
            self.chain.add_mirostat(self._context.n_vocab, self._seed, wish.mirostat_tau, wish.mirostat_eta, MIROSTAT_M)
        else:
            self.chain.add_mirostat_v2(self._seed, wish.mirostat_tau, wish.mirostat_eta)

    def penalties(self) -> None:
        wish, window = self._wish, self._window(self._wish.repeat_last_n)
        if window and (wish.repeat_penalty != 1 or wish.presence_penalty or wish.frequency_penalty):
            n_vocab = self._context.n_vocab
            self.chain.add_penalties(n_vocab, window, wish.repeat_penalty, wish.frequency_penalty, wish.presence_penalty)
            self._show_prompt(window)

    def dry(self) -> None:
        wish, window = self._wish, self._window(self._wish.dry_penalty_last_n)
        if window and wish.dry_multiplier and wish.dry_base >= 1:
            breakers, vocab = list(wish.dry_sequence_breakers), self._context.vocab
            self.chain.add_dry(vocab, wish.dry_multiplier, wish.dry_base, wish.dry_allowed_length, window, breakers)
            self._show_prompt(window)

    def _window(self, asked: int) -> int:
        return self._context.n_ctx if asked < 0 else min(asked, self._context.n_ctx)

    def _show_prompt(self, window: int) -> None:
        """The link alone has seen the prompt; a grammar in the same chain must not."""
        link = self.chain.chain_get(self._n_links)
        for token in self._prompt[-window:]:
            link.accept(token)
        self._n_links += 1

    def top_n_sigma(self) -> None:
        if self._wish.top_n_sigma > 0:
            self._add("add_top_n_sigma", self._wish.top_n_sigma)

    def top_k(self) -> None:
        if self._wish.top_k > 0:
            self._add("add_top_k", self._wish.top_k)

    def typical(self) -> None:
        if self._wish.typical_p < 1:
            self._add("add_typical", self._wish.typical_p, self._wish.min_keep)

    def top_p(self) -> None:
        if self._wish.top_p < 1:
            self._add("add_top_p", self._wish.top_p, self._wish.min_keep)

    def min_p(self) -> None:
        if self._wish.min_p > 0:
            self._add("add_min_p", self._wish.min_p, self._wish.min_keep)

    def xtc(self) -> None:
        wish = self._wish
        if wish.xtc_probability > 0 and wish.xtc_threshold <= 0.5:
            self._add("add_xtc", wish.xtc_probability, wish.xtc_threshold, wish.min_keep, self._seed)

    def temperature(self) -> None:
        wish = self._wish
        if wish.dynatemp_range > 0:
            self._add("add_temp_ext", wish.temperature, wish.dynatemp_range, wish.dynatemp_exponent)
        elif wish.temperature != 1:
            self._add("add_temp", wish.temperature)

    def _add(self, method: str, *values: float) -> None:
        getattr(self.chain, method)(*values)
        self._n_links += 1

    def draw(self, greedy: bool) -> None:
        wish = self._wish
        if greedy:
            if not wish.grammar:
                self.chain.add_top_k(1)  # finds the greatest in less time than the greedy link does
            self.chain.add_greedy()
        elif "adaptive_p" in wish.samplers and wish.adaptive_target >= 0:
            self.chain.add_adaptive_p(wish.adaptive_target, wish.adaptive_decay, self._seed)
        else:
            self.chain.add_dist(self._seed)


_LINKS: dict[str, Callable[[_Builder], None]] = {
    "penalties": _Builder.penalties,
    "dry": _Builder.dry,
    "top_n_sigma": _Builder.top_n_sigma,
    "top_k": _Builder.top_k,
    "typ_p": _Builder.typical,
    "top_p": _Builder.top_p,
    "min_p": _Builder.min_p,
    "xtc": _Builder.xtc,
    "temperature": _Builder.temperature,
    "adaptive_p": lambda builder: None,  # it draws, so it comes last wherever it is named
}
# These never take the most probable token away, so a greedy draw after them is a greedy draw without them.
_NO_MATTER_WHEN_GREEDY = frozenset({"top_n_sigma", "top_k", "top_p", "min_p", "temperature"})


def _last_link(chain: llama_cpp.LlamaSampler, place: int) -> None:
    """The binding says nothing about a grammar that llama.cpp refused: its link is missing."""
    try:
        chain.chain_get(place)
    except RuntimeError:
        raise ValueError("llama.cpp cannot read it") from None


@lru_cache(maxsize=64)
def check_grammar(grammar: str, context: SamplerContext) -> None:
    """Raises ValueError with what is wrong, to follow a name of the grammar and a colon. Clients repeat what was right."""
    if not context.spells_bytes:
        raise ValueError("this model's vocabulary cannot spell every text")
    check_terminals(grammar)
    chain = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
    try:
        chain.add_grammar(context.vocab, grammar, "root")
        _last_link(chain, 0)
    finally:
        chain.close()


def schema_grammar(schema: dict[str, Any]) -> str:
    """GBNF for a JSON schema. Raises ValueError with a sentence when it cannot be one."""
    return _schema_grammar(json.dumps(schema))


@lru_cache(maxsize=64)
def _schema_grammar(schema: str) -> str:
    try:
        return str(llama_cpp.json_schema_to_grammar(schema))
    except Exception as error:  # the converter asserts, indexes and recurses its way through what a client sent
        raise ValueError(str(error)[:200] or type(error).__name__) from error


def token_probs(logits: Sequence[float], token: int, n: int) -> TokenProbs:
    """Natural logarithms of the softmax over a row: of the drawn token, and of the `n` most probable ones in falling order."""
    row = np.asarray(logits, dtype=np.float64)
    n = min(n, len(row))
    highest = row.max()
    norm = highest + math.log(np.exp(row - highest).sum())
    best = np.argpartition(row, -n)[-n:]
    best = best[np.argsort(-row[best], kind="stable")]
    return TokenProbs(token, float(row[token] - norm), tuple((int(each), float(row[each] - norm)) for each in best))
