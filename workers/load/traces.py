"""Recorded traces of arrivals and sizes. Pure: lines in, rows out.

| format | a line | time |
| --- | --- | --- |
| mooncake | JSON with `timestamp`, `input_length`, `output_length`, `hash_ids` of blocks of 512 tokens | milliseconds |
| burstgpt | CSV with `Timestamp`, `Request tokens`, `Response tokens` | seconds |
| azure | CSV with `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` | date and time |
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

MOONCAKE_BLOCK = 512


class TraceError(ValueError):
    """A line is not of the format; the message names it."""


@dataclass(frozen=True, slots=True)
class Row:
    """`at_s` from the trace's first row. `blocks`: names of the prompt's blocks of 512 tokens, equal ones being equal text."""

    at_s: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()


def read(lines: Iterable[str], form: str, limit: int) -> list[Row]:
    """The first `limit` rows that asked for something and got something, by time. Raises TraceError.

    Rows without prompt or answer are left out: traces "with fails" have them, and such a request has no known size.
    """
    found = sorted(
        islice((row for row in _READERS[form](lines) if row.prompt > 0 and row.output > 0), limit), key=lambda row: row.at_s
    )
    if not found:
        raise TraceError("The trace has no row with a prompt and an answer.")
    start = found[0].at_s
    return [Row(row.at_s - start, row.prompt, row.output, row.blocks) for row in found]


def _mooncake(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            blocks = tuple(int(block) for block in row.get("hash_ids", ()))
            yield Row(float(row["timestamp"]) / 1000.0, int(row["input_length"]), int(row["output_length"]), blocks)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceError(f"Line {number} of the trace is not Mooncake's form: {_why(error)}.") from None


def _burstgpt(lines: Iterable[str]) -> Iterator[Row]:
    return _table(lines, "BurstGPT", ("Timestamp", "Request tokens", "Response tokens"), float)


def _azure(lines: Iterable[str]) -> Iterator[Row]:
    return _table(lines, "Azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _moment)


def _table(lines: Iterable[str], whose: str, columns: tuple[str, str, str], time: Callable[[str], float]) -> Iterator[Row]:
    when, prompt, output = columns
    rows: Iterator[Mapping[str, Any]] = csv.DictReader(lines)
    for number, row in enumerate(rows, start=2):
        try:
            yield Row(time(row[when]), int(float(row[prompt])), int(float(row[output])))
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(f"Line {number} of the trace is not {whose}'s form: {_why(error)}.") from None


def _moment(text: str) -> float:
    """UTC. Some files have seven digits of a second, one more than a datetime takes."""
    whole, _, fraction = text.strip().removesuffix("Z").removesuffix("+00:00").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def _why(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__


_READERS: dict[str, Callable[[Iterable[str]], Iterator[Row]]] = {"mooncake": _mooncake, "burstgpt": _burstgpt, "azure": _azure}
