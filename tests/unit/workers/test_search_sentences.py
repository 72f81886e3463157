"""What a search found, in words."""

from __future__ import annotations

from typing import Any

import pytest

from workers.analysis.load import BlockLoad, compare
from workers.analysis.search_sentences import search_sentence


def found(low: float | None, high: float | None) -> dict[str, Any]:
    return {"stream": "request", "share": 0.9, "tries": [], "low_per_s": low, "high_per_s": high}


@pytest.mark.parametrize(
    ("searches", "words"),
    [
        (
            [found(3.0, 3.5), found(4.0, 4.6)],
            "Physical: 3.5 requests a second with 90 % of requests within their limits, 4.05 not.",
        ),
        (
            [found(8.0, None)],
            "Physical: 8 requests a second with 90 % of requests within their limits, the highest rate that was tried.",
        ),
        (
            [{**found(8.0, None), "cut_short": True}],
            "Physical: 8 requests a second with 90 % of requests within their limits, the generator could not send more.",
        ),
        (
            [found(None, 0.25)],
            "Physical: none of the rates tried kept 90 % of requests within their limits, down to 0.25 a second.",
        ),
        ([found(None, None)], "Physical: no rate could be judged."),
        ([], "No search is complete yet."),
    ],
)
def test_an_arms_bracket_in_words(searches: list[dict[str, Any]], words: str) -> None:
    assert search_sentence({"A": searches, "B": []}, ("physical", "rotating"), []) == words


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.5, " Against the first, the second carries +50.0 % (+47.0 to +53.0 %)."), (1.0, " No difference between them is shown.")],
)
def test_the_arms_are_compared_over_their_pairs(factor: float, words: str) -> None:
    loads = [
        (BlockLoad({("request", "capacity"): low}, {}), BlockLoad({("request", "capacity"): low * factor * wobble}, {}))
        for low, wobble in ((3.0, 1.0), (3.2, 1.02), (3.1, 0.98), (3.0, 1.01), (3.3, 0.99), (3.1, 1.0), (3.0, 1.02), (3.2, 0.98))
    ]
    searches = {"A": [found(3.0, 3.5)], "B": [found(4.0, 4.5)]}
    assert search_sentence(searches, ("physical", "rotating"), compare(loads)).endswith(words)
    assert search_sentence(searches, ("physical", "rotating"), compare(loads[:2])).endswith(
        "Not enough runs to show a difference."
    )
