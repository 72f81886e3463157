"""docs/metrics.md as the page that every figure's name links to: HTML with an anchor at each heading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

SOURCE = Path("docs") / "metrics.md"

# What the fairness panel shows: key of the object in docs/protocol.md, name, anchor of its definition.
MEASURES = (
    ("jain_slots", "Jain, slots", "jains-index"),
    ("jain_clients", "Jain, clients", "jains-index"),
    ("max_service_gap_s", "Max service gap", "max-service-gap"),
    ("oldest_wait_s", "Oldest wait", "oldest-wait"),
    ("stalls", "Stalls", "stalls"),
    ("worst_itl_s", "Worst token gap", "token-gap"),
    ("cache_hit", "Cache hits", "cache-hit"),
)
PERCENTILES = (("ttft", "TTFT", "ttft-and-itl-percentiles"), ("itl", "ITL", "ttft-and-itl-percentiles"))


@dataclass(frozen=True, slots=True)
class Entry:
    level: int
    name: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Definitions:
    html: SafeString
    entries: tuple[Entry, ...]


def anchor_of(heading: str) -> str:
    """As GitHub makes it, so that links inside the file work in both places."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def render(text: str) -> Definitions:
    """Raw HTML in the text is shown, not obeyed; links out of the file become plain words."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    entries = []
    for token, inside in pairwise(tokens):
        if token.type != "heading_open":
            continue
        entry = Entry(int(token.tag[1]), _plain(inside), anchor_of(_plain(inside)))
        token.attrSet("id", entry.anchor)
        entries.append(entry)
    for token in tokens:
        if token.children:
            token.children = _without_outer_links(token.children)
    html = parser.renderer.render(tokens, parser.options, {})
    return Definitions(mark_safe(html), tuple(entries))


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or [])


def _without_outer_links(children: list[Token]) -> list[Token]:
    kept, open_links = [], []
    for child in children:
        if child.type == "link_open":
            open_links.append(str(child.attrGet("href") or "").startswith("#"))
            if not open_links[-1]:
                continue
        elif child.type == "link_close" and not open_links.pop():
            continue
        kept.append(child)
    return kept


@lru_cache(maxsize=2)
def _read(path: Path, changed: int) -> Definitions:
    return render(path.read_text(encoding="utf-8"))


def definitions() -> Definitions:
    """Raises OSError when the file is not there."""
    path = settings.BASE_DIR / SOURCE
    return _read(path, path.stat().st_mtime_ns)
