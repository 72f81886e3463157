"""When alerts open and close: never on a moment, never twice, never on what nobody knows."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_api.alerts.conditions import Finding
from scheduler_api.alerts.kinds import Kind, Spec, in_force
from scheduler_api.alerts.tracking import MOST_OPEN, Closed, Opened, Tracks, Transition

RULE = Spec(1, Kind.QUEUE_AGE, None, threshold_s=60.0, for_s=5.0, clear_s=10.0)


def found(value_s: float, key: str = "") -> list[Finding]:
    return [Finding(key, value_s, 60.0, f"{value_s:g} s")]


def play(tracks: Tracks, values: Sequence[float | None], start: float = 0.0) -> list[tuple[float, Transition]]:
    """A look each second; None is an unknown second, 0 one in which nothing was found. When what happened."""
    happened = []
    for second, value in enumerate(values, start=int(start)):
        seen = None if value is None else found(value) if value >= 48.0 else []
        happened += [(float(second), each) for each in tracks.step(RULE, 7, seen, float(second))]
    return happened


def kinds(happened: list[tuple[float, Transition]]) -> list[tuple[float, str]]:
    return [(second, "open" if isinstance(each, Opened) else "close") for second, each in happened]


def test_it_opens_after_a_while_stays_and_closes_after_a_while() -> None:
    happened = play(Tracks(), [61.0] * 20 + [0.0] * 15)
    assert kinds(happened) == [(5.0, "open"), (30.0, "close")]
    opened, closed = happened[0][1], happened[1][1]
    assert isinstance(opened, Opened)
    assert (opened.began, opened.at, opened.key) == (0.0, 5.0, (1, 7, ""))
    assert closed == Closed((1, 7, ""), 30.0, 61.0)


def test_a_moment_opens_nothing() -> None:
    assert play(Tracks(), [61.0, 61.0, 61.0, 61.0, 61.0, 0.0] * 10) == []


def test_a_value_about_its_limit_opens_once() -> None:
    assert kinds(play(Tracks(), [61.0] * 6 + [59.0, 61.0] * 50)) == [(5.0, "open")]


def test_gone_for_a_moment_is_not_gone() -> None:
    assert kinds(play(Tracks(), [61.0] * 6 + ([0.0] * 9 + [61.0]) * 10)) == [(5.0, "open")]


def test_between_gone_and_over_nothing_opens() -> None:
    assert play(Tracks(), [50.0] * 60) == []


def test_what_is_not_known_neither_opens_nor_closes() -> None:
    assert play(Tracks(), [61.0, 61.0, None, 61.0, 61.0, None] * 10) == []
    assert kinds(play(Tracks(), [61.0] * 6 + [None] * 100 + [0.0] * 11)) == [(5.0, "open"), (116.0, "close")]
    assert kinds(play(Tracks(), [61.0] * 6 + ([0.0] * 9 + [None]) * 20)) == [(5.0, "open")]


def test_a_time_without_looks_shows_nothing() -> None:
    tracks = Tracks()
    tracks.step(RULE, 7, found(61.0), 0.0)
    assert tracks.step(RULE, 7, found(61.0), 100.0) == []
    assert kinds([(0.0, each) for each in tracks.step(RULE, 7, found(61.0), 105.0)]) == [(0.0, "open")]


def test_an_adopted_alert_does_not_open_again_and_closes_when_it_is_seen_gone() -> None:
    tracks = Tracks()
    tracks.adopt((1, 7, ""), began=-100.0, peak_s=90.0)
    happened = play(tracks, [None] * 3 + [61.0] * 10 + [0.0] * 11)
    assert kinds(happened) == [(23.0, "close")]
    closed = happened[0][1]
    assert isinstance(closed, Closed)
    assert closed.peak_s == 90.0


def test_each_key_goes_its_own_way() -> None:
    tracks = Tracks()
    for second in range(6):
        happened = tracks.step(RULE, 7, [*found(61.0, "a"), *found(61.0, "b")], float(second))
    assert [each.key[2] for each in happened] == ["a", "b"]
    for second in range(6, 17):
        happened = tracks.step(RULE, 7, found(61.0, "a"), float(second))
    assert [(type(each), each.key[2]) for each in happened] == [(Closed, "b")]


def test_a_rule_that_is_gone_closes_what_it_opened() -> None:
    tracks = Tracks()
    play(tracks, [61.0] * 8)
    assert tracks.close_others([(1, 7)], 9.0, "switched off") == []
    assert tracks.close_others([(2, 7)], 9.0, "switched off") == [Closed((1, 7, ""), 9.0, 61.0, "switched off")]
    assert tracks.open() == {}


def test_a_servers_own_rule_takes_the_place_of_the_one_for_all() -> None:
    own = Spec(2, Kind.QUEUE_AGE, 7, 5.0, 0.0, 10.0)
    other = Spec(3, Kind.STARVING, None, 5.0, 0.0, 10.0)
    assert in_force([RULE, own, other], 7) == [own, other]
    assert in_force([RULE, own, other], 8) == [RULE, other]


def test_a_server_where_all_wait_opens_a_bounded_number_and_more_as_those_close() -> None:
    tracks = Tracks()
    many = [finding for n in range(50) for finding in found(61.0, f"client {n:02}")]
    opened = [each for second in range(8) for each in tracks.step(RULE, 7, many, float(second))]
    assert [each.key[2] for each in opened] == [f"client {n:02}" for n in range(MOST_OPEN)]
    later = [each for second in range(8, 20) for each in tracks.step(RULE, 7, many[5:], float(second))]
    assert sum(isinstance(each, Closed) for each in later) == 5
    assert len(tracks.open()) == MOST_OPEN
