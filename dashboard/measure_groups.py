"""Measures in the groups of a page: each stream, each client label, the whole block; and those of fairness. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dashboard.charts.forest import Forest
from dashboard.results import MeasureRow, measure_row
from dashboard.stream_words import limit_words, stream_words
from workers.analysis.naming import CLIENT
from workers.scenarios.streams import LoadScenario, Stream

OPEN_STREAMS = 4  # with more of them the others are folded, each with its headline
STATISTIC_ORDER = ("", "mean", "p50", "p95", "p99", "max")
MEASURE_ORDER = ("capacity", "ttft", "itl", "tpot", "e2e", "goodput", "throughput", "requests")
NO_STREAMS: Mapping[str, Stream] = MappingProxyType({})

type RowOf = Callable[[Mapping[str, Any], bool], MeasureRow]  # of a measure, told whether it is the first of its metric


@dataclass(frozen=True, slots=True)
class Group:
    """The measures of one stream, or of the whole block (`name` is "")."""

    name: str
    what: str
    limits: str
    rows: tuple[MeasureRow, ...]
    headline: str
    folded: bool


def groups(
    found: Mapping[str, Any], drawn: Forest, scenario: LoadScenario | None, stretch: float, *, clients: bool
) -> list[Group]:
    """Of the results of a run of streams; with `clients` those of client labels too. `stretch`: what times were multiplied by."""
    streams = {stream.name: stream for stream in scenario.streams} if scenario else {}
    listed = [*found["measures"], *(found["clients"] if clients else ())]
    return groups_of(listed, lambda row, first: measure_row(row, drawn.marks.get(row["key"]), first=first), streams, stretch)


def groups_of(
    measures: Sequence[Mapping[str, Any]], row_of: RowOf, streams: Mapping[str, Stream] = NO_STREAMS, stretch: float = 1.0
) -> list[Group]:
    """Streams in the scenario's order, then client labels, the whole block last; in each group the mean before the tail."""
    by_who: dict[str, list[Mapping[str, Any]]] = {}
    for measure in measures:
        by_who.setdefault(measure["who"], []).append(measure)
    names = sorted(by_who, key=lambda name: (name == "", name.startswith(CLIENT), _place(name, streams)))
    folded = [name for name in names if name][OPEN_STREAMS:]
    return [_group(name, by_who[name], row_of, streams.get(name), stretch, folded=name in folded) for name in names]


def _place(name: str, streams: Mapping[str, Stream]) -> int:
    return list(streams).index(name) if name in streams else len(streams)


def clients_apart(scenario: LoadScenario | None) -> bool:
    """Whether some client label has more than one stream, so that its measures are not those of a stream."""
    labels = [stream.client for stream in scenario.streams if stream.client] if scenario else []
    return len(labels) != len(set(labels))


def _group(
    name: str, measures: Sequence[Mapping[str, Any]], row_of: RowOf, stream: Stream | None, stretch: float, *, folded: bool
) -> Group:
    rows, before = [], ""
    for measure in sorted(measures, key=_rank):
        rows.append(row_of(measure, measure["metric"] != before))
        before = measure["metric"]
    head = next((row for row in rows if row.statistic == "mean"), rows[0])
    return Group(
        name=name.replace(CLIENT, "client ", 1) if name.startswith(CLIENT) else name,
        what=_what(stream) if stream else "",
        limits=limit_words(stream, stretch) if stream else "",
        rows=tuple(rows),
        headline=f"{head.label} {head.statistic} {head.change}, {head.verdict}",
        folded=folded,
    )


def _what(stream: Stream) -> str:
    client = f"; client {stream.client}" if stream.client and stream.client != stream.name else ""
    return stream_words(stream) + client


def _rank(measure: Mapping[str, Any]) -> tuple[int, int]:
    metric, stat = measure["metric"], measure["stat"]
    return (
        MEASURE_ORDER.index(metric) if metric in MEASURE_ORDER else len(MEASURE_ORDER),
        STATISTIC_ORDER.index(stat) if stat in STATISTIC_ORDER else len(STATISTIC_ORDER),
    )


@dataclass(frozen=True, slots=True)
class FairRow:
    """A measure of fairness of all streams (`who` is "") or of one."""

    who: str
    row: MeasureRow


def fair_rows(measures: Sequence[Mapping[str, Any]], *, clients: bool) -> list[FairRow]:
    """Of the whole block first, then metric by metric; of client labels only where they are not a stream each."""
    order = list(dict.fromkeys(measure["metric"] for measure in measures))
    listed = [measure for measure in measures if clients or not measure["who"].startswith(CLIENT)]
    if not clients:
        listed = [measure for measure in listed if measure["metric"] != "jain_clients"]
    ordered = sorted(listed, key=lambda measure: (measure["who"] != "", order.index(measure["metric"])))
    return [FairRow(measure["who"].replace(CLIENT, "client ", 1), measure_row(measure, None)) for measure in ordered]


def split_rows(rows: Sequence[FairRow], most: int = 12) -> tuple[list[FairRow], list[FairRow]]:
    """Those that stand open and those that are folded."""
    return (list(rows), []) if len(rows) <= most else (list(rows[:most]), list(rows[most:]))
