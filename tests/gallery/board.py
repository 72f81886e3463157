"""The overview, and the page of a server in each of its states: live, rewound, its history."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gallery.looks import Shot

SERVERS = {
    "none": [],
    "little": ["idle"],
    "much": ["busy", "barrier", "unified", "simulated", "stock", "wide", "many", "vllm", "down"],
}
MUCH = ("much",)
SOME = ("little", "much")
PAGES: Sequence[Shot] = [
    Shot("overview", "/"),
    Shot("live-idle", "/servers/1/", amounts=SOME),
    Shot("live-busy", "/servers/2/", amounts=MUCH),
    Shot("live-barrier", "/servers/3/", amounts=MUCH),
    Shot("live-unified", "/servers/4/", amounts=MUCH),
    Shot("live-stock", "/servers/6/", amounts=MUCH),
    Shot("live-many", "/servers/8/", amounts=MUCH),
    Shot("live-vllm", "/servers/9/", amounts=MUCH),
    Shot("live-down", "/servers/10/", amounts=MUCH),
    Shot("history", "/servers/1/history/", amounts=SOME),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    return SERVERS[amount]
