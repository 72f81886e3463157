"""When windows begin and end, over nights, weeks and changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from scheduler_api.policies.windows import Edge, Once, Span, Weekly, due, next_edge, words

OFFICE = Weekly((0, 1, 2, 3, 4), time(8), time(18), "Europe/Berlin")
NIGHT = Weekly((4,), time(22), time(6), "UTC")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "now", "what", "moment"),
    [
        (OFFICE, "2026-11-30T06:59", "end", "2026-11-27T17:00"),  # Monday morning: the last edge was on Friday
        (OFFICE, "2026-11-30T07:00", "begin", "2026-11-30T07:00"),
        (OFFICE, "2026-11-30T16:59", "begin", "2026-11-30T07:00"),
        (OFFICE, "2026-11-30T17:00", "end", "2026-11-30T17:00"),
        (OFFICE, "2026-07-01T06:00", "begin", "2026-07-01T06:00"),  # summer time
        (NIGHT, "2026-11-28T03:00", "begin", "2026-11-27T22:00"),
        (NIGHT, "2026-11-28T06:00", "end", "2026-11-28T06:00"),
        (Once(at("2026-11-30T10:00"), at("2026-11-30T11:00")), "2026-11-30T10:30", "begin", "2026-11-30T10:00"),
    ],
)
def test_the_edge_that_has_passed_last(window: Weekly | Once, now: str, what: str, moment: str) -> None:
    edge = due(window, at(now), LONG_AGO)
    if (at(now) - at(moment)) > timedelta(hours=36):
        assert edge is None  # too long ago to be caught up with
    else:
        assert edge is not None
        assert (edge.what, edge.due) == (what, at(moment))


def test_a_window_has_no_end_from_before_it_was_made() -> None:
    assert due(OFFICE, at("2026-11-30T18:00"), at("2026-11-30T17:30")) is None
    begun = due(OFFICE, at("2026-11-30T12:00"), at("2026-11-30T11:59"))
    assert begun is not None
    assert begun.what == "begin"  # what goes on when it is made begins at once


def test_a_day_with_a_change_of_the_clock_has_one_begin_and_one_end() -> None:
    spring = Weekly((6,), time(2, 30), time(4), "Europe/Berlin")  # 2:30 does not exist on 2026-03-29
    (span,) = spring.spans(datetime(2026, 3, 29).date(), datetime(2026, 3, 29).date())
    assert span == Span(at("2026-03-29T01:30"), at("2026-03-29T02:00"))
    autumn = Weekly((6,), time(2, 30), time(4), "Europe/Berlin")  # twice on 2026-10-25: the first counts
    (span,) = autumn.spans(datetime(2026, 10, 25).date(), datetime(2026, 10, 25).date())
    assert span == Span(at("2026-10-25T00:30"), at("2026-10-25T03:00"))


def test_the_next_edge_of_all() -> None:
    assert next_edge([OFFICE, NIGHT], at("2026-11-27T18:00")) == Edge(
        "begin", at("2026-11-27T22:00"), Span(at("2026-11-27T22:00"), at("2026-11-28T06:00"))
    )
    assert next_edge([Once(at("2026-01-01T10:00"), at("2026-01-01T11:00"))], at("2026-11-27T18:00")) is None


def test_in_words() -> None:
    assert words(OFFICE) == "Mon to Fri 08:00 to 18:00, Europe/Berlin"
    assert words(NIGHT) == "Fri 22:00 to 06:00 the day after, UTC"
    assert words(Weekly(tuple(range(7)), time(1), time(2), "UTC")).startswith("every day")
    assert words(Weekly((0, 2), time(1), time(2), "UTC")).startswith("Mon, Wed")
