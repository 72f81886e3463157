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


def test_a_new_run_begins_at_one() -> None:
    probe = FakeProbe()
    sieve = sieve_with(probe)
    for position in (10, 11, 12, 50):
        look(sieve, position, 7, 7)
    assert len(probe.asked) == 3


def test_the_first_repetition_and_an_end_are_looked_at() -> None:
    probe = FakeProbe()
    probe.finite = False
    assert look(sieve_with(probe), 5, 7, 7) == ({}, {0: NOT_FINITE})
    assert look(sieve_with(probe), 5, 7, 2) == ({}, {0: NOT_FINITE})
    assert look(sieve_with(probe), 5, 7, 8) == ({0: 8}, {})
