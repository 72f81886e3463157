"""What is looked up in a slot's own text, and how long a draft is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduler.lookup import AT_A_TIME, NgramIndex
from engine.scheduler.speculation import _common_length, best_length


class TestNgramIndex:
    def test_proposes_what_followed_the_last_occurrence(self) -> None:
        index = NgramIndex(2, [1, 2, 3, 4, 1, 2, 5, 6, 7, 1, 2])
        assert index.propose(3) == [5, 6, 7]

    def test_has_nothing_for_an_end_that_never_occurred(self) -> None:
        assert NgramIndex(2, [1, 2, 3, 4]).propose(3) == []
        assert NgramIndex(3, [1, 2]).propose(3) == []

    def test_goes_round_where_the_text_does(self) -> None:
        assert NgramIndex(2, [9, 1, 2, 1, 2]).propose(5) == [1, 2, 1, 2, 1]

    def test_learns_each_token_that_comes(self) -> None:
        index = NgramIndex(2, [1, 2, 3])
        for token in (9, 1, 2):
            index.extend([token])
        assert index.propose(2) == [3, 9]

    def test_a_long_prompt_enters_some_at_a_time(self) -> None:
        index = NgramIndex(2, [*range(AT_A_TIME + 10), AT_A_TIME + 5, AT_A_TIME + 6])
        assert index.propose(1) == []
        assert index.propose(1) == [AT_A_TIME + 7]

    @given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 4), st.integers(1, 8))
    def test_is_what_a_search_from_the_end_finds(self, text: list[int], size: int, most: int) -> None:
        index = NgramIndex(size, text[:5])
        for token in text[5:]:
            index.extend([token])
        end, places = text[-size:], range(len(text) - 1, size - 1, -1)
        place = next((place for place in places if text[place - size : place] == end), None)
        circle = [] if place is None or len(text) < size else text[place:]
        assert index.propose(most) == (circle * most)[:most]


class TestLength:
    @pytest.mark.parametrize(
        ("chance", "price", "most", "length"),
        [
            (0.5, 0.6, 16, 0),
            (0.9, 0.5, 16, 6),
            (0.99, 0.5, 16, 16),
            (0.5, 0.05, 16, 4),
            (1.0, 0.9, 7, 7),
            (0.3, 0.0, 9, 9),
            (0.9, 0.1, 0, 0),
        ],
    )
    def test_as_long_as_the_last_token_is_worth_its_price(self, chance: float, price: float, most: int, length: int) -> None:
        assert best_length(chance, price, most) == length

    @pytest.mark.parametrize(
        ("lengths", "room", "length"),
        [
            ([16, 16, 1], 64, 16),
            ([16, 16, 16, 1], 20, 6),
            ([8, 1, 1, 1], 64, 8),
            ([3, 2, 2, 2], 64, 2),
            ([], 9, 0),
            ([5, 5], 1, 0),
        ],
    )
    def test_one_for_all_of_a_batch(self, lengths: list[int], room: int, length: int) -> None:
        assert _common_length(lengths, room) == length
