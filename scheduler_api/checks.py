"""What `manage.py check` finds in the settings about connections and credentials."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from scheduler_api.targets import bad_entries

SHORTEST_KEY = 32


@register("security")
def allow_lists(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name in ("TARGET_ALLOW", "WEBHOOK_ALLOW"):
        for entry in bad_entries(getattr(settings, name)):
            text = f"SLOTBOARD_{name}: {entry!r} is neither a host name, nor *.suffix, nor a network such as 10.0.0.0/8."
            found.append(Error(text, id="slotboard.E001"))
    return found


@register("security")
def credential_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    keys = settings.CREDENTIAL_KEYS
    if not keys:
        return [Error("SLOTBOARD_CREDENTIAL_KEYS names no key.", id="slotboard.E002")]
    if any(len(key) < SHORTEST_KEY for key in keys):
        return [Error(f"A key in SLOTBOARD_CREDENTIAL_KEYS has fewer than {SHORTEST_KEY} characters.", id="slotboard.E003")]
    if settings.SECRET_KEY in keys:
        return [Error("SLOTBOARD_CREDENTIAL_KEYS holds the secret key, which must not open credentials.", id="slotboard.E004")]
    return []
