"""The samples of a run as rows of the page's table, and what the requests of a run came to in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from dashboard.charts import words
from workers.models import Sample as Row
from workers.sample_values import FILTERS, SamplePage

PAGE = 100

type Sample = dict[str, Any]


def as_samples(rows: Iterable[list[str | int | float | None]]) -> tuple[list[str], list[Sample]]:
    """Column names and samples from `workers.selectors.sample_rows`, whose first row is the header."""
    listed = iter(rows)
    names = [str(name) for name in next(listed, [])]
    return names, [dict(zip(names, row, strict=True)) for row in listed]


def request_words(counts: Mapping[str, int]) -> str:
    """ "16 counted, 9 warm-up, none failed"; `counts` as `workers.sample_values.sample_counts` gives them."""
    if not counts["total"]:
        return ""
    rest = counts["total"] - counts["counted"] - counts["left_out"]
    parts = [f"{words.whole(counts['counted'])} counted", *([f"{words.whole(rest)} warm-up"] if rest else [])]
    parts += [f"{words.whole(counts['left_out'])} of pairs that a restart cut"] if counts["left_out"] else []
    return ", ".join([*parts, f"{words.whole(counts['failed'])} failed" if counts["failed"] else "none failed"])


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    numeric: bool
    title: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """`anchor`: of the definition of what it holds; ""."""

    name: str
    unit: str
    anchor: str
    numeric: bool = True


COLUMNS = (
    Column("pair", "", "", numeric=True),
    Column("arm", "", "", numeric=False),
    Column("stream", "", "", numeric=False),
    Column("client", "", "", numeric=False),
    Column("slot", "", ""),
    Column("outcome", "", "", numeric=False),
    Column("sent", "s", ""),
    Column("dispatch", "ms", "dispatch-delay"),
    Column("wait", "s", "wait"),
    Column("TTFT", "s", "ttft"),
    Column("TPOT", "ms", "tpot"),
    Column("E2E", "s", "e2e"),
    Column("prompt", "tokens", "prompt-tokens"),
    Column("cached", "tokens", "cached-tokens"),
    Column("generated", "tokens", "generated-tokens"),
    Column("level", "", ""),
    Column("note", "", "", numeric=False),
)


def table(samples: Sequence[Row], start: float) -> list[list[Cell]]:
    """Rows of COLUMNS; moments count from `start`, since Unix seconds say nothing to the eye."""
    return [[Cell(text, column.numeric) for text, column in zip(_texts(each, start), COLUMNS, strict=True)] for each in samples]


def _texts(sample: Row, start: float) -> tuple[str, ...]:
    dispatch = None if sample.scheduled_at is None else max(0.0, sample.sent_at - sample.scheduled_at) * 1000
    return (
        str(sample.pair) if sample.pair else "none",
        sample.arm,
        sample.role,
        sample.client,
        "server's" if sample.slot is None else str(sample.slot),
        sample.outcome or ("ok" if sample.ok else "failed"),
        f"{sample.sent_at - start:.3f}",
        "after another" if dispatch is None else f"{dispatch:.1f}",
        _seconds(sample.wait_s),
        _seconds(sample.ttft_s),
        _tpot(sample),
        _seconds(sample.wall_s),
        _tokens(sample.n_prompt),
        _tokens(sample.n_cached),
        _tokens(sample.n_generated),
        str(sample.stage + 1),
        _note(sample),
    )


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.3f}"


def _tokens(value: int | None) -> str:
    return "not told" if value is None else words.whole(value)


def _tpot(sample: Row) -> str:
    if sample.wall_s is None or sample.ttft_s is None or sample.n_generated is None or sample.n_generated < 2:
        return "none"
    return f"{(sample.wall_s - sample.ttft_s) / (sample.n_generated - 1) * 1000:.1f}"


def _note(sample: Row) -> str:
    if sample.error:
        return sample.error
    return "" if sample.counted and sample.pair and sample.role != "warm" else "does not count"


@dataclass(frozen=True, slots=True)
class Pager:
    """The page of samples that is shown and how to reach the others; `query` is of this one without its number."""

    shown: str
    number: int
    pages: int
    before: str
    after: str
    wanted: Mapping[str, str]


def pager(page: SamplePage, wanted: Mapping[str, str]) -> Pager:
    first = (page.number - 1) * PAGE + 1
    shown = f"{words.whole(first)} to {words.whole(first + len(page.samples) - 1)} of {words.whole(page.count)}"
    if page.count != page.total:
        shown += f", of {words.whole(page.total)} in all"

    def query(number: int) -> str:
        kept = {name: value for name, value in wanted.items() if value}
        return urlencode({**kept, "page": number})

    return Pager(
        shown=shown if page.samples else "none matches",
        number=page.number,
        pages=page.pages,
        before=query(page.number - 1) if page.number > 1 else "",
        after=query(page.number + 1) if page.number < page.pages else "",
        wanted=wanted,
    )


def wanted_of(query: Mapping[str, str]) -> dict[str, str]:
    """The filters of a request's query, at a length that a filter can have."""
    return {name: query.get(name, "")[:60] for name in FILTERS}
