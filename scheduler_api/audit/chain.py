"""The hash chain over audit rows (docs/adr/0022). Pure.

Each row's hash is SHA-256 over its canonical content, which includes the hash of the row before it and its place. So a row that
was edited, taken out, put in or moved breaks the chain at its place. Rows cut off at the end leave a chain that is whole: against
that the place and hash of the newest row are noted elsewhere, and compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1
#: What stands before the first row.
GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class Content:
    """All that a row says. `at` is ISO 8601 in UTC with microseconds; `before` and `after` are JSON texts, "" for none."""

    seq: int
    at: str
    actor_id: int | None
    actor_name: str
    through: str
    address: str
    action: str
    subject: str
    server_id: int | None
    server_name: str
    ref: str
    before: str
    after: str
    why: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Link:
    content: Content
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The first row that does not hold, and what is wrong with it."""

    seq: int
    why: str


@dataclass(frozen=True, slots=True)
class Head:
    """The newest row. `seq` 0 and GENESIS for an empty trail."""

    seq: int = 0
    hash: str = GENESIS


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces. Raises ValueError for NaN and Infinity, TypeError for what is no JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def digest(content: Content, previous: str) -> str:
    """64 hex digits."""
    told = {"version": VERSION, "previous": previous, **asdict(content)}
    return hashlib.sha256(canonical(told).encode("utf-8")).hexdigest()


def check(links: Iterable[Link]) -> Head | Broken:
    """`links` by ascending `seq`, all of them. The head of a whole chain, or its first broken row."""
    head = Head()
    for link in links:
        seq = link.content.seq
        if seq != head.seq + 1:
            missing = f"row {head.seq + 1} is" if seq == head.seq + 2 else f"rows {head.seq + 1} to {seq - 1} are"
            return Broken(seq, f"{missing} missing before it" if seq > head.seq else "it stands in a place that is taken")
        if link.previous != head.hash:
            return Broken(seq, "it does not follow from the row before it")
        if digest(link.content, link.previous) != link.hash:
            return Broken(seq, "its content is not what was written")
        head = Head(seq, link.hash)
    return head
