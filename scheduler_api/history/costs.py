"""How long a batch takes, from those that were recorded: so much a batch, a prompt token, its depth, and a decode token. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

_ROUNDS = 12
#: Of batches with prompt tokens, and of those without.
_MOST_SAMPLES = 200
#: A residual below this share of the median batch weighs like one of it: weights stay finite.
_FLOOR = 0.01
_N = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch computes. `depth`: for each prompt token the number of tokens before it, in thousands, summed up: attention
    costs that much more the further a prompt is."""

    prompt: int
    depth: float
    decode: int

    @property
    def parts(self) -> tuple[float, float, float, float]:
        return 1.0, float(self.prompt), self.depth, float(self.decode)


def depth_of(before: int, tokens: int) -> float:
    """Of `tokens` prompt tokens in a row behind `before` others."""
    return tokens * (before + (tokens - 1) / 2) / 1000


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: for a batch, a prompt token, a thousand tokens before a prompt token, and a decode token."""

    batch: float
    prompt_token: float
    depth: float
    decode_token: float

    def of(self, load: Load) -> float:
        return _sum((self.batch, self.prompt_token, self.depth, self.decode_token), load.parts)


type Sample = tuple[tuple[float, ...], float]


def fit(batches: Iterable[tuple[Load, float]]) -> Costs | None:
    """The costs with the least sum of absolute errors over batches and their seconds, none negative; None without a batch.

    Least absolute errors, by squares reweighted: a batch that took ten times as long as its like moves them little. Where the
    batches do not tell two costs apart (all are equally full), one stands for both, prompt tokens rather than the batch.
    """
    samples = _chosen(batches)
    for size in range(_N, 0, -1):
        best: tuple[float, tuple[float, ...]] | None = None
        for columns in reversed(list(combinations(range(_N), size))):
            found = _reweighted(samples, columns) if samples else None
            if found is not None and min(found) >= 0:
                error = sum(abs(took - _sum(found, parts)) for parts, took in samples)
                if best is None or error < best[0] * 0.999:
                    best = error, found
        if best is not None:
            return Costs(*best[1])
    return None


def _chosen(batches: Iterable[tuple[Load, float]]) -> list[Sample]:
    kinds: tuple[list[Sample], list[Sample]] = ([], [])
    for load, took in batches:
        kinds[bool(load.prompt)].append((load.parts, took))
    return [sample for kind in kinds for sample in kind[:: max(1, math.ceil(len(kind) / _MOST_SAMPLES))]]


def _sum(costs: Sequence[float], parts: Sequence[float]) -> float:
    return sum(cost * part for cost, part in zip(costs, parts, strict=True))


def _reweighted(samples: Sequence[Sample], columns: Sequence[int]) -> tuple[float, ...] | None:
    """All costs, those not in `columns` 0; None when the samples do not determine them."""
    typical = sorted(took for _, took in samples)[len(samples) // 2]
    floor = max(typical * _FLOOR, 1e-9)
    weights = [1.0] * len(samples)
    found: tuple[float, ...] | None = None
    for _ in range(_ROUNDS):
        solved = _squares(samples, weights, columns)
        if solved is None:
            return found
        found = tuple(solved[columns.index(at)] if at in columns else 0.0 for at in range(_N))
        weights = [1.0 / max(abs(took - _sum(found, parts)), floor) for parts, took in samples]
    return found


def _squares(samples: Sequence[Sample], weights: Sequence[float], columns: Sequence[int]) -> list[float] | None:
    """Weighted least squares by the normal equations, whose columns are scaled to one size first."""
    scale = [max(parts[at] for parts, _ in samples) or 1.0 for at in columns]
    size = range(len(columns))
    matrix = [[0.0] * (len(columns) + 1) for _ in size]
    for (parts, took), weight in zip(samples, weights, strict=True):
        row = [parts[at] / scale[column] for column, at in enumerate(columns)]
        for a in size:
            weighted = weight * row[a]
            for b in size:
                matrix[a][b] += weighted * row[b]
            matrix[a][-1] += weighted * took
    solved = _eliminated(matrix)
    return None if solved is None else [value / scale[at] for at, value in enumerate(solved)]


def _eliminated(matrix: list[list[float]]) -> list[float] | None:
    """Gauss-Jordan with the largest pivots; None when a pivot is as good as 0."""
    n = len(matrix)
    largest = max(abs(value) for row in matrix for value in row[:-1])
    for at in range(n):
        pivot = max(range(at, n), key=lambda row: abs(matrix[row][at]))
        if not math.isfinite(largest) or abs(matrix[pivot][at]) <= 1e-9 * largest:
            return None
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for row in range(n):
            if row != at:
                factor = matrix[row][at] / matrix[at][at]
                matrix[row] = [value - factor * other for value, other in zip(matrix[row], matrix[at], strict=True)]
    return [matrix[at][-1] / matrix[at][at] for at in range(n)]
