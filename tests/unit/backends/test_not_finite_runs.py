"""When rows of a text that repeats a token are looked at."""

from __future__ import annotations

from typing import Any

from engine.backends.finite import NOT_FINITE, Sieve
from engine.scheduler.plan import Entry, EntryKind


class FakeProbe:
    """Says what it is told; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.finite = True

    def is_finite(self, context: Any, row: int) -> bool:
        self.asked.append(row)
        return self.finite


def look(sieve: Sieve, position: int, token: int, drawn: int) -> tuple[dict[int, int], dict[int, str]]:
    entry = Entry(0, 1, EntryKind.GENERATION, (token,), position, True)
    tokens, errors = {0: drawn}, dict[int, str]()
    sieve.look_again([(0, entry)], tokens, errors)
    return tokens, errors


def sieve_with(probe: FakeProbe) -> Sieve:
    sieve = Sieve.__new__(Sieve)
    sieve.probe = probe  # type: ignore[assignment]
    sieve._context, sieve._samplers, sieve._eog, sieve._unified, sieve._runs = None, [None], frozenset({2}), False, {}
    return sieve


def test_a_long_run_is_looked_at_ever_more_rarely() -> None:
    probe = FakeProbe()
    sieve = sieve_with(probe)
    for position in range(100):
        look(sieve, position, 7, 7)
    assert len(probe.asked) == 7  # at lengths 1, 2, 4, 8, 16, 32, 64


def test_short_runs_do_not_cost_a_look_each() -> None:
    probe = FakeProbe()
    sieve = sieve_with(probe)
    for position in range(0, 300, 3):
        look(sieve, position, 7, 7)
    assert len(probe.asked) == 7  # of 100 repetitions


def test_a_row_that_is_none_is_found_after_four_of_its_tokens_at_most() -> None:
    probe = FakeProbe()
    sieve = sieve_with(probe)
    for position in range(0, 99, 3):  # 33 repetitions: the next one due for its number is the 64th
        look(sieve, position, 7, 7)
    probe.finite = False
    found = [look(sieve, position, 0, 0)[1] for position in range(200, 204)]
    assert found == [{}, {}, {}, {0: NOT_FINITE}]


def test_the_first_repetition_and_an_end_are_looked_at() -> None:
    probe = FakeProbe()
    probe.finite = False
    assert look(sieve_with(probe), 5, 7, 7) == ({}, {0: NOT_FINITE})
    assert look(sieve_with(probe), 5, 7, 2) == ({}, {0: NOT_FINITE})
    assert look(sieve_with(probe), 5, 7, 8) == ({0: 8}, {})
