"""Prompts of an exact length, drawn from a model's ordinary tokens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

# Any text of common words does: what counts is that its pieces are plain ones in every vocabulary.
SAMPLE_TEXT = """
river stone window garden letter number paper water light morning evening summer winter market village mountain forest
island harbour bridge engine signal station corner kitchen table chair picture mirror ladder hammer needle thread cotton
silver copper butter sugar coffee orange lemon apple cherry potato carrot onion pepper bread cheese dinner breakfast
holiday journey ticket luggage captain doctor teacher student farmer painter singer writer reader player leader worker
father mother brother sister cousin neighbour simple quiet gentle narrow distant hollow yellow purple golden early later
always never often again between without against towards carry follow gather listen answer wonder travel measure compare
arrange prepare deliver collect improve replace remember consider quickly slowly softly clearly nearly hardly barely
suddenly probably certainly perhaps however therefore although because during
"""

# Specials and byte pieces come first in nearly every vocabulary: sentencepiece has 3 + 256, the tiny model 5 + 256.
ORDINARY_FROM = 300
LEAST_POOL = 32


class PromptError(Exception):
    """The model's vocabulary gives too few ordinary tokens."""


def ordinary_pool(tokens: Sequence[int]) -> tuple[int, ...]:
    """The distinct plain tokens of a tokenised text, sorted.

    Low ids are left out while enough others remain, since they may be specials or single bytes; a vocabulary of bytes alone keeps
    them. Raises PromptError.
    """
    distinct = sorted(set(tokens))
    pool = [token for token in distinct if token >= ORDINARY_FROM]
    if len(pool) < LEAST_POOL:
        pool = distinct
    if len(pool) < LEAST_POOL // 4:
        raise PromptError(
            f"The model's tokenizer makes only {len(pool)} distinct tokens of a text of {len(SAMPLE_TEXT.split())} words."
        )
    return tuple(pool)


def random_prompt(pool: Sequence[int], length: int, seed: str) -> list[int]:
    """The same tokens for the same seed, in every process."""
    return Random(seed).choices(pool, k=length)
