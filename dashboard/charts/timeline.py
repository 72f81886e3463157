"""A block's timeline: one lane for each slot; prompt batches thick, generation soft, waiting a thin line, queued dotted, held
hatched. Times are seconds since the cold request was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure
from dashboard.charts.requests import RequestRow, bars, line, marks, request_rows, request_traces

THICK = 0.66
GAP_S = 0.02  # stretches closer than this are one
ROOM = 0.3  # of the axis that a sentence inside a lane needs
MOST_READOUTS = 2000
LONGEST_NAME = 12  # of a stream before its lane; the readout has the whole
SEVERAL = "several"
GUTTER, NARROW_GUTTER = 104, 76  # px left of the plot, for the slots' names

type Span = tuple[float, float]

NOTHING: dict[str, Any] = {"prompt": [], "gen": [], "held": [], "skipped": []}  # kept blocks leave out what is empty


@dataclass(slots=True)
class Lane:
    """What one slot did: spans in seconds."""

    slot: int
    role: str = ""
    prompt: list[Span] = field(default_factory=list)
    generation: list[Span] = field(default_factory=list)
    waiting: list[Span] = field(default_factory=list)
    held: list[Span] = field(default_factory=list)
    queued: list[Span] = field(default_factory=list)
    whole: list[Span] = field(default_factory=list)  # in service, batches unknown
    reasons: list[str] = field(default_factory=list)
    done: list[float] = field(default_factory=list)


def origin_of(block: Mapping[str, Any]) -> float | None:
    """When the block's cold request was sent, else its first request; None without requests."""
    requests = block.get("requests") or []
    sent = [request["sent_at"] for request in requests if request["role"] == "cold"]
    return min(sent or [request["sent_at"] for request in requests], default=None)


def timeline_range(blocks: Iterable[Mapping[str, Any]]) -> Span:
    """The range of seconds that holds every request of these blocks, so that arms drawn under each other compare."""
    low, high = 0.0, 0.0
    for block in blocks:
        origin = origin_of(block)
        if origin is None:
            continue
        for request in block.get("requests") or []:
            low = min(low, request["sent_at"] - origin)
            high = max(
                high, *((request.get(key) or request["sent_at"]) - origin for key in ("sent_at", "first_visit_at", "done_at"))
            )
    width = (high - low) or 1.0
    return low - 0.015 * width, high + 0.06 * width


def timeline(block: Mapping[str, Any], over: Span) -> Figure:
    """Of one block; `over` is the common range of x."""
    origin = origin_of(block)
    requests = block.get("requests") or []
    steps = _steps(block.get("iterations") or [], origin or 0.0, over)
    lanes = _lanes(steps, requests, origin or 0.0, over)
    shown = sorted(lanes.values(), key=lambda lane: lane.slot)
    loose = list(enumerate(request_rows(requests, origin or 0.0, over[1]), start=len(shown)))
    data = [trace for row, lane in enumerate(shown) for trace in _traces(row, lane)]
    data += [trace for row, each in loose for trace in request_traces(row, each)]
    grid = [tick for tick in base.ticks(0.0, over[1], 6) if tick <= over[1]]
    rows = max(len(shown) + len(loose), 1)
    return {
        "data": data,
        "layout": base.layout(
            base.axis(over[0], over[1], grid, base.tick_words(grid), fixedrange=False, showgrid=True, layer="below traces"),
            base.axis(rows - 0.5, -0.5, [], [], showgrid=False),
            margin={"l": GUTTER, "r": 16, "t": 0, "b": 20, "pad": 0},
            dragmode="zoom",
            barmode="overlay",
            shapes=_frames(shown, loose, GUTTER),
            annotations=[
                *_names(shown, loose, GUTTER),
                *(note for row, lane in enumerate(shown) for note in _notes(row, lane, over)),
            ],
        ),
        "narrow": {
            "margin": {"l": NARROW_GUTTER, "r": 0, "t": 0, "b": 20, "pad": 0},
            "shapes": _frames(shown, loose, NARROW_GUTTER),
            "annotations": _names(shown, loose, NARROW_GUTTER),
        },
        "rows": rows,
        "readouts": [_readout(step, lanes) for step in steps[:MOST_READOUTS]] or _request_readouts(requests, origin or 0.0),
        "alt": "; ".join(_sentence(request, origin or 0.0) for request in requests) or "No request was sent",
    }


def _steps(iterations: Sequence[Mapping[str, Any]], origin: float, over: Span) -> list[dict[str, Any]]:
    """Iterations inside the range, with their start and end in seconds since `origin`."""
    steps = []
    for iteration in iterations:
        start = iteration["t"] - origin
        took = (iteration.get("plan_ms") or 0.0) + (iteration.get("run_ms") or 0.0) + (iteration.get("settle_ms") or 0.0)
        if start + took / 1000 > over[0] and start < over[1]:
            steps.append({**NOTHING, **iteration, "start": start, "end": start + took / 1000})
    return steps


def _lanes(
    steps: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]], origin: float, over: Span
) -> dict[int, Lane]:
    lanes: dict[int, Lane] = {}
    pinned = [request for request in requests if request["slot"] is not None]
    for request in pinned:
        lane = lanes.setdefault(request["slot"], Lane(request["slot"]))
        lane.role = request["role"] if lane.role in ("", request["role"]) else SEVERAL
    for step in steps:
        span = (step["start"], step["end"])
        for slot, _ in step["prompt"]:
            lanes.setdefault(slot, Lane(slot)).prompt.append(span)
        for slot, _ in step["gen"]:
            _extend(lanes.setdefault(slot, Lane(slot)).generation, span)
        for slot in step["held"]:
            _extend(lanes.setdefault(slot, Lane(slot)).held, span)
        for slot, reason in step["skipped"]:
            lane = lanes.setdefault(slot, Lane(slot))
            _extend(lane.waiting, span)
            lane.reasons.append(reason)
    for request in pinned:
        _queue(lanes[request["slot"]], request, origin, over)
    return lanes


def _extend(spans: list[Span], span: Span) -> None:
    if spans and span[0] - spans[-1][1] < GAP_S:
        spans[-1] = (spans[-1][0], span[1])
    else:
        spans.append(span)


def _queue(lane: Lane, request: Mapping[str, Any], origin: float, over: Span) -> None:
    """From being sent to the first iteration that knew of it; without iterations also the service as a whole."""
    sent = request["sent_at"] - origin
    visit, done = (request[key] - origin if request.get(key) is not None else None for key in ("first_visit_at", "done_at"))
    seen = [span for spans in (lane.prompt, lane.generation, lane.waiting, lane.held) for span in spans if span[1] > sent]
    known = [start for start, _ in seen if start > sent - GAP_S]  # what began before served another one
    until = min([*known, *(moment for moment in (visit, done) if moment is not None)], default=over[1])
    if until > sent:
        lane.queued.append((sent, until))
    if not seen and visit is not None:
        lane.whole.append((visit, done if done is not None else over[1]))
    if done is not None:
        lane.done.append(done)


def _traces(row: int, lane: Lane) -> list[dict[str, Any]]:
    solid, soft = base.slot_colour(lane.slot), base.slot_colour(lane.slot, soft=True)
    hatched = lane.slot >= base.SLOT_HUES
    traces = []
    if lane.prompt or lane.whole:
        fill: dict[str, Any] = {"color": solid, "line": {"color": "--bg", "width": 1}}
        if hatched:
            fill["pattern"] = {"shape": "/", "fgcolor": "--bg", "size": 6, "solidity": 0.25, "fillmode": "overlay"}
        traces.append(bars(row, [*lane.prompt, *lane.whole], fill, "prompt", THICK))
    if lane.generation:
        traces.append(bars(row, lane.generation, {"color": soft, "line": {"width": 0}}, "generation", THICK))
    if lane.held:
        pattern = {"shape": "/", "fgcolor": solid, "bgcolor": "--bg", "size": 5, "solidity": 0.4, "fillmode": "replace"}
        edge = {"color": solid, "width": 1}
        traces.append(bars(row, lane.held, {"color": solid, "pattern": pattern, "line": edge}, "held", THICK))
    if lane.waiting:
        traces.append(line(row, lane.waiting, {"color": "--ink-3", "width": 1.4}, "waiting"))
    if lane.queued:
        traces.append(line(row, lane.queued, {"color": "--ink-3", "width": 1.4, "dash": "2px,3px"}, "queued"))
    if len(lane.done) > 1:
        traces.append(marks(row, sorted(lane.done)[:-1], "line-ns", "--ink", "done"))
    return traces


def _frames(shown: Sequence[Lane], loose: Sequence[tuple[int, RequestRow]], gutter: int) -> list[dict[str, Any]]:
    """A rule stands under each slot, and under the last row of each stream."""
    last = [row for at, (row, _) in enumerate(loose) if at + 1 == len(loose) or loose[at + 1][1].name]
    return [*(shape for row, lane in enumerate(shown) for shape in _frame(row, lane, gutter)), *(_rule(row) for row in last)]


def _frame(row: int, lane: Lane, gutter: int) -> list[dict[str, Any]]:
    """The slot's square before its name, and the hairline under its lane."""
    return [base.slot_square(lane.slot, row, gutter), _rule(row)]


def _rule(row: int) -> dict[str, Any]:
    rule = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": row + 0.5, "y1": row + 0.5, "layer": "below"}
    return {**rule, "line": {"color": "--line", "width": 1}}


def _names(shown: Sequence[Lane], loose: Sequence[tuple[int, RequestRow]], gutter: int) -> list[dict[str, Any]]:
    streams = [_label(row, each.name, gutter) for row, each in loose if each.name]
    more = [_label(row, f"+{each.more}", gutter) for row, each in loose if each.more and not each.name]
    return [*(_name(row, lane, gutter) for row, lane in enumerate(shown)), *streams, *more]


def _label(row: int, text: str, gutter: int) -> dict[str, Any]:
    shown = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}\u2026"
    label = base.note(0, row, shown, xref="paper", xanchor="left", xshift=-gutter, yanchor="middle")
    return {**label, "font": {"size": 12, "color": "--ink-2"}}


def _name(row: int, lane: Lane, gutter: int) -> dict[str, Any]:
    role = lane.role if len(lane.role) < LONGEST_NAME else f"{lane.role[: LONGEST_NAME - 2]}\u2026"
    role = f"  {role}" if role else ""
    label = base.note(0, row, f"<b>{lane.slot}</b>{role}", xref="paper", xanchor="left", xshift=-gutter + 15, yanchor="middle")
    return {**label, "font": {"size": 12, "color": "--ink-2"}}


def _notes(row: int, lane: Lane, over: Span) -> list[dict[str, Any]]:
    """The longest wait in words, and where the request was done."""
    width = over[1] - over[0]
    notes = []
    if lane.waiting:
        longest = max(lane.waiting, key=lambda span: span[1] - span[0])
        if longest[1] - longest[0] > ROOM * width:
            notes.append(
                base.note(longest[0] + 0.02 * width, row, _wait_words(lane), xanchor="left", bgcolor="--bg", borderpad=2)
            )
    for moment in sorted(lane.done)[-1:]:
        if (over[1] - moment) / width > 0.035:
            notes.append(base.note(moment, row, "done", xanchor="left", xshift=6))
    return notes


def _wait_words(lane: Lane) -> str:
    total = sum(end - start for start, end in lane.waiting)
    common = max(set(lane.reasons), key=lambda reason: (lane.reasons.count(reason), reason))
    count = lane.reasons.count(common)
    return f"waits {words.span(total)}: {common.removeprefix('waits: ')}{f', {count} times' if count > 1 else ''}"


def _readout(step: Mapping[str, Any], lanes: Mapping[int, Lane]) -> dict[str, Any]:
    def name(slot: int) -> str:
        role = lanes[slot].role
        return f"slot {slot} ({role})" if role else f"slot {slot}"

    parts = [f"{name(slot)} took {words.whole(tokens)} prompt tokens" for slot, tokens in step["prompt"]]
    parts += [f"{name(slot)} generated {tokens}" for slot, tokens in step["gen"]]
    parts += [f"{name(slot)} waits: {reason.removeprefix('waits: ')}" for slot, reason in step["skipped"]]
    parts += [f"{name(slot)} held" for slot in step["held"]]
    head = f"Iteration {step['i']}, {words.seconds(step['start'])} to {words.seconds(step['end'])} s"
    return {
        "x0": base.number(step["start"]),
        "x1": base.number(step["end"]),
        "text": f"{head}: {'; '.join(parts) or 'nothing to run'}",
    }


def _request_readouts(requests: Sequence[Mapping[str, Any]], origin: float) -> list[dict[str, Any]]:
    """Without iterations: what is known of each request."""
    readouts = []
    for request in sorted(requests, key=lambda one: float(one["sent_at"])):
        start = request["sent_at"] - origin
        end = (request.get("done_at") or request["sent_at"]) - origin
        readouts.append({"x0": base.number(start), "x1": base.number(end), "text": _sentence(request, origin)})
    return readouts


def _sentence(request: Mapping[str, Any], origin: float) -> str:
    role = str(request["role"])
    if request.get("done_at") is None:
        return f"{role} sent at {words.seconds(request['sent_at'] - origin)} s, not done"
    return f"{role} took {words.seconds(request['done_at'] - request['sent_at'])} s"
