"""Rows of a timeline for requests whose slot the server chose: one below the other where they overlap, stream by stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.charts import base

THICK = 0.5
MOST_ROWS = 24  # of all streams together

type Span = tuple[float, float]


@dataclass(slots=True)
class RequestRow:
    """Requests of one stream that do not overlap, seconds since the block's origin."""

    name: str  # of the stream in its first row, else ""
    before: list[Span] = field(default_factory=list)  # from sent to the first token, or to the first visit where that is known
    prompt: list[Span] = field(default_factory=list)
    answer: list[Span] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)  # the last that is known of them
    left: list[float] = field(default_factory=list)  # likewise, of those whose client left
    until: float = float("-inf")
    more: int = 0  # requests for which there was no row left


def request_rows(requests: Sequence[Mapping[str, Any]], origin: float, end: float) -> list[RequestRow]:
    """Of the requests without a slot. Each stream gets its share of MOST_ROWS; what does not fit is counted in its last row."""
    loose = sorted((each for each in requests if each["slot"] is None), key=lambda each: float(each["sent_at"]))
    streams = list(dict.fromkeys(str(each["role"]) for each in loose))
    found = []
    for stream in streams[:MOST_ROWS]:
        rows = [RequestRow(stream)]
        for request in loose:
            if request["role"] == stream:
                _place(rows, request, origin, end, max(1, MOST_ROWS // len(streams)))
        found += rows
    return found


def _place(rows: list[RequestRow], request: Mapping[str, Any], origin: float, end: float, most: int) -> None:
    sent = request["sent_at"] - origin
    visit, first, done = (
        None if request.get(name) is None else request[name] - origin for name in ("first_visit_at", "first_token_at", "done_at")
    )
    outcome = request.get("outcome") or "ok"
    known = max(moment for moment in (sent, visit, first) if moment is not None)
    last = done if done is not None else end if outcome == "ok" else known  # when a client left is not told
    row = next((each for each in rows if each.until <= sent), None)
    if row is None and len(rows) < most:
        row = RequestRow("")
        rows.append(row)
    if row is None:
        rows[-1].more += 1
        return
    served = min(moment for moment in (visit, first, last) if moment is not None)
    row.before.append((sent, served))
    if visit is not None:
        row.prompt.append((visit, first if first is not None else last))
    if first is not None and last > first:
        row.answer.append((first, last))
    if outcome != "ok":
        (row.left if outcome == "cancelled" else row.failed).append(last)
    row.until = last


def request_traces(place: int, row: RequestRow) -> list[dict[str, Any]]:
    """What one row draws at the height `place`."""
    traces = []
    for spans, colour, name in ((row.prompt, "--st-prompt", "prompt"), (row.answer, "--line-2", "generation")):
        if spans:
            traces.append(bars(place, spans, {"color": colour, "line": {"width": 0}}, name, THICK))
    if row.before:
        traces.append(line(place, row.before, {"color": "--ink-3", "width": 1.4, "dash": "2px,3px"}, "queued"))
    if row.left:
        traces.append(marks(place, row.left, "circle-open", "--ink-3", "cancelled"))
    if row.failed:
        traces.append(marks(place, row.failed, "x-thin", "--bad", "failed"))
    return traces


def bars(place: float, spans: Sequence[Span], marker: dict[str, Any], name: str, width: float) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [base.number(start) for start, _ in spans],
        "x": [base.number(end - start) for start, end in spans],
        "y": [place] * len(spans),
        "width": width,
        "marker": marker,
        "hoverinfo": "skip",
    }


def line(place: float, spans: Sequence[Span], style: dict[str, Any], name: str) -> dict[str, Any]:
    x: list[float | None] = []
    for start, end in spans:
        x += [base.number(start), base.number(end), None]
    y = [None if value is None else place for value in x]
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": style, "hoverinfo": "skip"}


def marks(place: float, moments: Sequence[float], symbol: str, colour: str, name: str) -> dict[str, Any]:
    marker = {"symbol": symbol, "size": 8, "color": colour, "line": {"color": colour, "width": 1.6}}
    at = [base.number(moment) for moment in moments]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": at,
        "y": [place] * len(at),
        "marker": marker,
        "hoverinfo": "skip",
    }
