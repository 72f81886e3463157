"""What an operator sets: policies of a server, its draft check, its registration, alerts and their rules, share links."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gallery.looks import Shot

SERVERS = {"none": [], "little": ["idle"], "much": ["busy", "barrier", "unified", "stock"]}
SOME = ("little", "much")
PAGES: Sequence[Shot] = [
    Shot("server-add", "/servers/add/"),
    Shot("policies", "/servers/1/policies/", amounts=SOME),
    Shot("drafts", "/servers/1/drafts/", amounts=SOME),
    Shot("alerts", "/alerts/"),
    Shot("alert-rules", "/alerts/rules/"),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    return SERVERS[amount]
