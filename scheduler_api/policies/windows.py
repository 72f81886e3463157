"""Policies by the clock: when a window begins and ends. Pure; times are aware, `zone` is an IANA name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Span:
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Weekly:
    """`ends` at or before `begins` is on the day after."""

    days: tuple[int, ...]
    begins: time
    ends: time
    zone: str

    def spans(self, first: date, last: date) -> Iterator[Span]:
        """Those that begin on a day from `first` to `last`, in the zone. A time that does not exist, where clocks are put
        forward, is the moment that the offset before gives; where they are put back the first of two counts."""
        zone = ZoneInfo(self.zone)
        for offset in range((last - first).days + 1):
            day = first + timedelta(days=offset)
            if day.weekday() not in self.days:
                continue
            over = day + timedelta(days=1) if self.ends <= self.begins else day
            begin, end = (datetime.combine(*at, tzinfo=zone).astimezone(UTC) for at in ((day, self.begins), (over, self.ends)))
            if end > begin:
                yield Span(begin, end)


@dataclass(frozen=True, slots=True)
class Once:
    begin: datetime
    end: datetime


type Window = Weekly | Once


def spans_about(window: Window, now: datetime) -> list[Span]:
    """Those that end after a day and a half ago and begin within eight days, oldest first."""
    if isinstance(window, Once):
        return [Span(window.begin, window.end)]
    today = now.astimezone(ZoneInfo(window.zone)).date()
    about = window.spans(today - timedelta(days=2), today + timedelta(days=8))
    return sorted((span for span in about if span.end > now - timedelta(hours=36)), key=lambda span: span.begin)


@dataclass(frozen=True, slots=True)
class Edge:
    """`what` is "begin" or "end"."""

    what: str
    due: datetime
    span: Span


def due(window: Window, now: datetime, since: datetime) -> Edge | None:
    """The newest edge that has passed and is to be seen to. The window was made or changed at `since`: it has no end before,
    but a span that goes on then begins."""
    for span in reversed(spans_about(window, now)):
        if span.end <= now:
            return Edge("end", span.end, span) if span.end > since else None
        if span.begin <= now:
            return Edge("begin", span.begin, span)
    return None


def next_edge(windows: Iterable[Window], now: datetime) -> Edge | None:
    """The first edge to come."""
    edges = [
        edge
        for window in windows
        for span in spans_about(window, now)
        for edge in (Edge("begin", span.begin, span), Edge("end", span.end, span))
        if edge.due > now
    ]
    return min(edges, key=lambda edge: edge.due, default=None)


def words(window: Window) -> str:
    """ "Mon to Fri 08:00 to 18:00, Europe/Berlin" or "2026-12-24 18:00 to 2026-12-25 06:00 UTC"."""
    if isinstance(window, Once):
        return f"once, {window.begin.astimezone(UTC):%Y-%m-%d %H:%M} to {window.end.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    over = " the day after" if window.ends <= window.begins else ""
    return f"{day_words(window.days)} {window.begins:%H:%M} to {window.ends:%H:%M}{over}, {window.zone}"


def day_words(days: Iterable[int]) -> str:
    chosen = sorted(set(days))
    if len(chosen) == 7:
        return "every day"
    if len(chosen) > 2 and chosen == list(range(chosen[0], chosen[-1] + 1)):
        return f"{DAYS[chosen[0]]} to {DAYS[chosen[-1]]}"
    return ", ".join(DAYS[day] for day in chosen)
