"""Signing in, settings, people and their rights, the audit trail, definitions, and pages of refusals."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gallery.looks import Shot

PAGES: Sequence[Shot] = [
    Shot("login", "/login/", signed_in=False),
    Shot("settings", "/settings/"),
    Shot("sessions", "/settings/sessions/"),
    Shot("tokens", "/settings/tokens/"),
    Shot("shares", "/settings/shares/"),
    Shot("people", "/settings/people/"),
    Shot("person-add", "/settings/people/add/"),
    Shot("group-add", "/settings/groups/add/"),
    Shot("audit", "/audit/"),
    Shot("definitions", "/definitions/"),
    Shot("not-found", "/nothing-here/", status=404),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    return []
