"""How many tokens of a slot's cells a new prompt can keep. Slices are compared in chunks, so no whole prompt is ever copied."""

from __future__ import annotations

from collections.abc import Sequence

CHUNK = 1024


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two sequences of the same type."""
    limit = min(len(a), len(b))
    start = 0
    while start < limit:
        end = min(start + CHUNK, limit)
        if a[start:end] != b[start:end]:
            return _first_difference(a, b, start, end)
        start = end
    return limit


def _first_difference(a: Sequence[int], b: Sequence[int], low: int, high: int) -> int:
    """Bisects: the parts before `low` are equal, those before `high` are not."""
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def reusable(cells: Sequence[int], prompt: Sequence[int], *, can_trim: bool) -> int:
    """Cells that can stay for this prompt; at least one prompt token is left to evaluate, since its logits are needed.

    Memory that cannot drop a tail (recurrent, sliding window) keeps all of its cells or none.
    """
    n = common_prefix(cells, prompt)
    if can_trim:
        return max(0, min(n, len(prompt) - 1))
    return n if n == len(cells) and n < len(prompt) else 0
