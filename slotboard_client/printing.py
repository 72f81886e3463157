"""What the command prints: tables and lines of plain text. Nothing that a server sent moves a cursor or colours a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def plain(value: Any) -> str:
    """One line of printable characters; None is a dash."""
    text = "-" if value is None or value == "" else str(value)
    return "".join(each if each.isprintable() else " " for each in text)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as they need; the last one is not filled up."""
    listed = [[plain(each) for each in row] for row in rows]
    if not listed:
        return ""
    widths = [max(len(row[at]) for row in [list(head), *listed]) for at in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in [list(head), *listed])


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """ "version   42", a line each; those without a value are left out."""
    told = [(name, plain(value)) for name, value in pairs if value not in (None, "", [])]
    width = max((len(name) for name, _ in told), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in told)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def word(value: Any) -> str:
    """Of a policy's field: off for none."""
    return "off" if value is None else plain(value)


def arm(policy: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={word(value)}" for name, value in policy.items()) or "as it is"


def moment(text: str | None) -> str:
    """ "2026-05-01 09:00:00" in the zone of whoever reads."""
    if not text:
        return "-"
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return plain(text)


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def unix_moment(t: float | None) -> str:
    return "" if t is None else moment(datetime.fromtimestamp(t, UTC).isoformat())
