"""Marks, icons, numbers and times in templates."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard import present
from dashboard.charts.base import SLOT_HUES
from scheduler_api import selectors

register = template.Library()


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html('<svg class="i" aria-hidden="true"><use href="#i-{}"/></svg>', name)


@register.simple_tag
def mark(name: str, tone: str = "") -> SafeString:
    return format_html('<svg class="m {}" aria-hidden="true"><use href="#m-{}"/></svg>', tone, name)


@register.simple_tag
def rail_entries(servers: Iterable[Any]) -> list[dict[str, Any]]:
    listed = list(servers)
    states = present.states_of_now(selectors.live_states([server.pk for server in listed]), time.time())
    return present.rail(listed, states)


@register.filter
def grouped(value: float | None, places: int = 0) -> str:
    return present.grouped(value, places)


@register.filter
def duration(seconds: float | None) -> str:
    return present.duration(seconds)


@register.filter
def ago(moment: datetime | float | None) -> SafeString:
    """Relative time with the absolute one on hover; frame.js keeps it fresh."""
    if moment is None:
        return format_html("")
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else moment
    text = present.duration((timezone.now() - at).total_seconds())
    full = timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S %Z")
    return format_html('<time datetime="{}" title="{}">{} ago</time>', at.isoformat(), full, text)


@register.filter
def clock(moment: datetime | None) -> str:
    """14:30:34 today, 12 Nov 14:30 before."""
    if moment is None:
        return ""
    local = timezone.localtime(moment)
    return local.strftime("%H:%M:%S" if local.date() == timezone.localdate() else "%-d %b %H:%M")


@register.filter
def hue(slot: int) -> int:
    """The colour of a slot: eight of them, then again from the first."""
    return slot % SLOT_HUES
