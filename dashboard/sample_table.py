"""The samples of a run as `workers.selectors.sample_rows` gives them, for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dashboard.charts import words

MOST_SAMPLES = 400  # rows of the table on the page; the CSV has all

type Sample = dict[str, Any]


def as_samples(rows: Iterable[list[str | int | float | None]]) -> tuple[list[str], list[Sample]]:
    """Column names and samples from `workers.selectors.sample_rows`, whose first row is the header."""
    listed = iter(rows)
    names = [str(name) for name in next(listed, [])]
    return names, [dict(zip(names, row, strict=True)) for row in listed]


def request_words(samples: Iterable[Sample]) -> str:
    """ "16 counted, 9 warm-up, none failed"."""
    listed = list(samples)
    if not listed:
        return ""
    counted = sum(1 for sample in listed if sample["pair"] and sample["role"] in ("short", "cold"))
    failed = sum(1 for sample in listed if not sample["ok"])
    rest = len(listed) - counted
    parts = [f"{words.whole(counted)} counted", *([f"{words.whole(rest)} warm-up"] if rest else [])]
    return ", ".join([*parts, f"{words.whole(failed)} failed" if failed else "none failed"])


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    numeric: bool


HEADS = {"sent_at": "sent, s", "first_token_at": "first token, s", "done_at": "done, s"}


def table(names: list[str], samples: list[Sample]) -> tuple[list[Cell], list[list[Cell]]]:
    """Head and rows; moments count from the first one sent, since Unix seconds say nothing to the eye."""
    shown = [name for name in names if name not in ("run", "ok", "policy_version")]
    numeric = {name for name in shown if name not in ("arm", "role", "error")}
    start = min((sample["sent_at"] for sample in samples), default=0.0)
    head = [
        Cell(HEADS.get(name, name.replace("_s", ", s") if name.endswith("_s") else name.replace("_", " ")), name in numeric)
        for name in shown
    ]
    rows = [[Cell(_cell_text(sample, name, start), name in numeric) for name in shown] for sample in samples[:MOST_SAMPLES]]
    return head, rows


def _cell_text(sample: Sample, name: str, start: float) -> str:
    value = sample[name]
    if value is None:
        return "not reached" if name.endswith(("_at", "_s")) else ""
    if name.endswith("_at"):
        return f"{value - start:.3f}"
    if name.endswith("_s"):
        return f"{value:.3f}"
    return words.whole(value) if name in ("n_prompt", "n_cached") else str(value)
