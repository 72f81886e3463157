"""Experiments and scenarios: the lists, the form, a run from its start to its result, comparing."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gallery.looks import Shot

PAGES: Sequence[Shot] = [
    Shot("list", "/experiments/"),
    Shot("new", "/experiments/new/"),
    Shot("import", "/experiments/import/"),
    Shot("scenarios", "/scenarios/"),
    Shot("scenario", "/scenarios/victim-and-attacker/"),
    Shot("scenario-add", "/scenarios/add/"),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    return [] if amount == "none" else ["busy"]
