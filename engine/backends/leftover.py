"""What a task's samplers leave of a row of logits, for clients that ask for probabilities after sampling.

The binding draws a token and shows nothing of the candidates, so links whose effect follows from the row and the tokens before it
are computed here once more, for the tasks that ask. The rules are those of llama.cpp's samplers of the same names.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from engine.scheduler.plan import TokenProbs
from engine.scheduler.task import SamplingParams

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]


class Leftover:
    """Follows one task: `probs` is called for each of its tokens, in their order.

    Not for grammars, DRY, XTC, mirostat and adaptive-p, which depend on more, or on chance.
    """

    def __init__(self, wish: SamplingParams, eog: Iterable[int], prompt: Sequence[int], n_ctx: int) -> None:
        self._wish = wish
        self._eog = list(eog) if wish.ignore_eos else []
        window = n_ctx if wish.repeat_last_n < 0 else min(wish.repeat_last_n, n_ctx)
        self._seen: deque[int] = deque(prompt[-window:] if window else (), maxlen=window)
        self._ids: _Ids = np.empty(0, dtype=np.int64)
        self._logits: _Floats = np.empty(0)

    def probs(self, row: Sequence[float], token: int, n: int) -> TokenProbs:
        """Probabilities, not their logarithms: of the drawn token, and of the `n` most probable that were left."""
        self._logits = np.array(row, dtype=np.float64)
        self._ids = np.arange(len(self._logits))
        for biased, bias in self._wish.logit_bias:
            self._logits[biased] += bias
        self._logits[self._eog] = -math.inf
        for name in self._wish.samplers:
            if (link := _LINKS.get(name)) is not None:
                link(self)
        self._seen.append(token)
        probs = _softmax(self._logits)
        best = np.argsort(-probs, kind="stable")[:n]
        drawn = probs[self._ids == token]
        top = tuple((int(self._ids[place]), float(probs[place])) for place in best)
        return TokenProbs(token, float(drawn[0]) if len(drawn) else 0.0, top)

    def _keep(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> None:
        self._ids, self._logits = self._ids[chosen], self._logits[chosen]

    def _penalties(self) -> None:
        wish = self._wish
        for token, count in Counter(self._seen).items():
            logit = self._logits[self._ids == token]
            logit = np.where(logit <= 0, logit * wish.repeat_penalty, logit / wish.repeat_penalty)
            self._logits[self._ids == token] = logit - count * wish.frequency_penalty - wish.presence_penalty

    def _top_n_sigma(self) -> None:
        finite = self._logits[np.isfinite(self._logits)]
        if self._wish.top_n_sigma > 0 and len(finite) > 1:
            self._keep(self._logits >= finite.max() - self._wish.top_n_sigma * finite.std())

    def _top_k(self) -> None:
        if 0 < self._wish.top_k < len(self._ids):
            self._keep(np.argsort(-self._logits, kind="stable")[: max(self._wish.top_k, self._wish.min_keep)])

    def _typical(self) -> None:
        if self._wish.typical_p < 1:
            probs = _softmax(self._logits)
            surprise = -np.log(np.maximum(probs, 1e-300))
            order = np.argsort(np.abs(surprise - (probs * surprise).sum()), kind="stable")
            self._keep(order[: self._enough(np.cumsum(probs[order]) > self._wish.typical_p)])

    def _top_p(self) -> None:
        if self._wish.top_p < 1:
            order = np.argsort(-self._logits, kind="stable")
            self._keep(order[: self._enough(np.cumsum(_softmax(self._logits)[order]) >= self._wish.top_p)])

    def _enough(self, reached: npt.NDArray[np.bool_]) -> int:
        """How many candidates there are up to the first at which the limit is reached."""
        first = int(np.argmax(reached)) + 1 if reached.any() else len(reached)
        return max(first, self._wish.min_keep, 1)

    def _min_p(self) -> None:
        if self._wish.min_p > 0:
            order = np.argsort(-self._logits, kind="stable")
            enough = int((self._logits >= self._logits.max() + math.log(self._wish.min_p)).sum())
            self._keep(order[: max(enough, self._wish.min_keep, 1)])

    def _temperature(self) -> None:
        wish, temperature = self._wish, self._wish.temperature
        if wish.dynatemp_range > 0 and len(self._ids) > 1:
            probs = _softmax(self._logits)
            entropy = -(probs * np.log(np.maximum(probs, 1e-300))).sum() / math.log(len(probs))
            low, high = max(0.0, temperature - wish.dynatemp_range), temperature + wish.dynatemp_range
            temperature = low + (high - low) * float(entropy) ** wish.dynatemp_exponent
        if temperature > 0:
            self._logits = self._logits / temperature
        else:
            best = int(np.argmax(self._logits))
            self._logits = np.where(np.arange(len(self._logits)) == best, self._logits, -math.inf)


_LINKS: dict[str, Callable[[Leftover], None]] = {
    "penalties": Leftover._penalties,
    "top_n_sigma": Leftover._top_n_sigma,
    "top_k": Leftover._top_k,
    "typ_p": Leftover._typical,
    "top_p": Leftover._top_p,
    "min_p": Leftover._min_p,
    "temperature": Leftover._temperature,
}


def _softmax(logits: _Floats) -> _Floats:
    weights: _Floats = np.exp(logits - logits.max())
    return weights / weights.sum()
