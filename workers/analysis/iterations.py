"""What the server's iterations tell about a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workers.analysis.numbers import median

type Json = Mapping[str, Any]

KEPT = ("i", "t", "run_ms", "prompt", "gen", "skipped", "held", "phase", "cohort", "policy", "error")
MOST_KEPT = 1000


def shortened(iterations: Sequence[Json], clock_offset_s: float = 0.0) -> dict[str, Any]:
    """The fields that a timeline draws, on the client's clock, and how many iterations were left out past MOST_KEPT."""
    kept = []
    for row in iterations[:MOST_KEPT]:
        fields = {name: row[name] for name in KEPT if row.get(name) not in (None, [], "")}
        kept.append({**fields, "t": row["t"] - clock_offset_s, "prompt": row.get("prompt", []), "gen": row.get("gen", [])})
    return {"iterations": kept, "left_out": len(iterations) - len(kept)}


def foreign_tokens(iterations: Sequence[Json], expected: Mapping[int, int]) -> dict[int, int]:
    """Prompt and generated tokens of other people's requests, by slot.

    `expected` has the prompt tokens that the block's own requests computed in each of their slots; what goes beyond is foreign.
    """
    prompt: Counter[int] = Counter()
    generated: Counter[int] = Counter()
    for row in iterations:
        for slot, tokens in row.get("prompt", []):
            prompt[slot] += tokens
        for slot, tokens in row.get("gen", []):
            generated[slot] += tokens
    found = {slot: tokens - expected.get(slot, 0) for slot, tokens in prompt.items()}
    for slot, tokens in generated.items():
        if slot not in expected:
            found[slot] = found.get(slot, 0) + tokens
    return {slot: tokens for slot, tokens in sorted(found.items()) if tokens > 0}


def foreign_policies(iterations: Sequence[Json], version: int) -> list[int]:
    """Policy versions other than `version` under which some of the iterations ran."""
    return sorted({row["policy"] for row in iterations if row.get("policy") not in (None, version)})


def full_batch_s(iterations: Sequence[Json], n_batch: int) -> float | None:
    """Median duration of a batch that is full of prompt tokens; None when there was none."""
    full = [row["run_ms"] / 1000.0 for row in iterations if sum(tokens for _, tokens in row.get("prompt", [])) >= n_batch]
    return median(full) if full else None
