"""How long a batch takes, from those that were recorded: a sum of a part for each batch, prompt token and decode token. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler_api.history.tally import Json

_ROUNDS = 25
_MOST_SAMPLES = 1500
#: A residual below this share of the median batch weighs like one of it: weights stay finite.
_FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds."""

    batch: float
    prompt_token: float
    decode_token: float

    def of(self, prompt: int, decode: int) -> float:
        return self.batch + self.prompt_token * prompt + self.decode_token * decode


def fit(iterations: Iterable[Json]) -> Costs | None:
    """The costs with the least sum of absolute errors, none of them negative; None without a batch.

    Least absolute errors, by squares reweighted: a batch that took ten times as long as its like moves them little.
    """
    samples = [
        (
            sum(n for _, n in each["prompt"]),
            sum(n for _, n in each["gen"]),
            each["run_ms"] / 1000 + (each["plan_ms"] or 0.0) / 1000,
        )
        for each in iterations
        if each.get("run_ms") is not None and (each["prompt"] or each["gen"]) and not each["error"]
    ]
    if not samples:
        return None
    chosen = samples[:: max(1, len(samples) // _MOST_SAMPLES)]
    best: tuple[float, tuple[float, ...]] | None = None
    for columns in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (1,), (2,), (0,)):
        found = _reweighted(chosen, columns)
        if found is None or min(found) < 0:
            continue
        error = sum(abs(took - _sum(found, prompt, decode)) for prompt, decode, took in chosen)
        if best is None or error < best[0] * 0.999:
            best = error, found
    return None if best is None else Costs(*best[1])


def _sum(costs: Sequence[float], prompt: int, decode: int) -> float:
    return costs[0] + costs[1] * prompt + costs[2] * decode


def _reweighted(samples: Sequence[tuple[int, int, float]], columns: Sequence[int]) -> tuple[float, ...] | None:
    """All three costs, those not in `columns` 0; None when the samples do not determine them."""
    typical = sorted(took for _, _, took in samples)[len(samples) // 2]
    floor = max(typical * _FLOOR, 1e-9)
    weights = [1.0] * len(samples)
    found: tuple[float, ...] | None = None
    for _ in range(_ROUNDS):
        solved = _squares(samples, weights, columns)
        if solved is None:
            return found
        found = tuple(solved[columns.index(at)] if at in columns else 0.0 for at in range(3))
        weights = [1.0 / max(abs(took - _sum(found, prompt, decode)), floor) for prompt, decode, took in samples]
    return found


def _squares(samples: Sequence[tuple[int, int, float]], weights: Sequence[float], columns: Sequence[int]) -> list[float] | None:
    """Weighted least squares by the normal equations, whose columns are scaled to one size first."""
    rows = [[(1.0, float(prompt), float(decode))[at] for at in columns] for prompt, decode, _ in samples]
    scale = [max(row[at] for row in rows) or 1.0 for at in range(len(columns))]
    size = range(len(columns))
    matrix = [[0.0] * (len(columns) + 1) for _ in size]
    for row, (_, _, took), weight in zip(rows, samples, weights, strict=True):
        scaled = [value / scale[at] for at, value in enumerate(row)]
        for a in size:
            for b in size:
                matrix[a][b] += weight * scaled[a] * scaled[b]
            matrix[a][-1] += weight * scaled[a] * took
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
