"""Drift above every page of a server."""

from __future__ import annotations

from typing import Any

from django import template

from dashboard import policy_page
from scheduler_api.policies import drifting

register = template.Library()


@register.simple_tag
def drift_of(server_id: int) -> dict[str, Any] | None:
    found = drifting.open_drift(server_id)
    return None if found is None else {"row": found, "words": policy_page.drift_words(found.expected, found.found)}
