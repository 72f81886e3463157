"""Small drawings of what a policy does, from worked rows. Pure.

The rows, in batches of 8: prompts of 20, 20 and 3 tokens on slots 0, 1 and 2, and for the fields about generation those that
docs/scheduler.md works out for them; a decode token is a token.
"""

from __future__ import annotations

from dataclasses import dataclass

type Row = list[tuple[int, int]]  # one batch: (slot, tokens) in the order in which the slots contributed

N_BATCH = 8
HIGH = 24
LONGEST = 10

# docs/scheduler.md works these rows out.
ROWS: dict[str, list[Row]] = {
    "prefill_order=physical": [[(0, 8)], [(0, 8)], [(0, 4), (1, 4)], [(1, 8)], [(1, 8)], [(2, 3)]],
    "prefill_order=rotating": [[(0, 8)], [(1, 8)], [(2, 3), (0, 5)], [(0, 7), (1, 1)], [(1, 8)], [(1, 3)]],
    "prefill_order=fair": [
        [(0, 3), (1, 3), (2, 2)],
        [(1, 3), (2, 1), (0, 4)],
        [(0, 4), (1, 4)],
        [(1, 4), (0, 4)],
        [(0, 4), (1, 4)],
        [(1, 2), (0, 1)],
    ],
    "prefill_order=shortest_first": [[(2, 3), (0, 5)], [(0, 8)], [(0, 7), (1, 1)], [(1, 8)], [(1, 8)], [(1, 3)]],
    "rotation_start=after_last": [[(0, 8)], [(1, 8)], [(2, 3), (0, 5)], [(1, 8)], [(0, 7), (1, 1)], [(1, 3)]],
    "rotation_start=after_first": [[(0, 8)], [(1, 8)], [(2, 3), (0, 5)], [(0, 7), (1, 1)], [(1, 8)], [(1, 3)]],
    "barrier_join=first_completion": [[(0, 5), (1, 3)], *[[(0, 8)]] * 4, [(0, 3)], [(2, 3)]],
    "barrier_join=window": [[(0, 5), (1, 3)], [(0, 5), (2, 3)], *[[(0, 8)]] * 3, [(0, 6)]],
    "barrier_max_generation_tokens": [
        [(0, 2), (1, 3)],
        [(0, 1), (1, 1)],
        [(2, 8)],
        [(2, 4)],
        [(0, 1), (1, 1), (2, 1)],
        *[[(0, 1), (2, 1)]] * 2,
        [(0, 1)],
    ],
    "decode_share": [[(0, 1)], [(0, 1), (1, 7)], *[[(0, 1)]] * 2, [(0, 1), (1, 7)], *[[(0, 1)]] * 3, [(0, 1), (1, 7)]],
    "prefill_chunk": [*[[(0, 5)]] * 4, *[[(1, 5)]] * 4, [(2, 3)]],
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A path for each slot, stacked from the bottom, one column a batch."""

    width: int
    paths: list[tuple[int, str]]


def drawing(key: str) -> Drawing | None:
    rows = ROWS.get(key)
    return batches(rows) if rows else None


def batches(rows: list[Row]) -> Drawing:
    column, gap = (14, 2) if len(rows) < LONGEST else (12, 2)
    paths: dict[int, str] = {}
    for index, row in enumerate(rows):
        filled = 0
        for slot, tokens in row:
            filled += tokens
            box = f"M{index * (column + gap)} {HIGH - filled * 3}h{column}v{tokens * 3}h-{column}z"
            paths[slot] = paths.get(slot, "") + box
    return Drawing(len(rows) * (column + gap) - gap, sorted(paths.items()))
