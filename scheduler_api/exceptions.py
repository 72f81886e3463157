"""Each error carries one sentence for the operator, cause first, in `text`."""

from __future__ import annotations

from typing import Any


class SchedulerApiError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ServerUnreachable(SchedulerApiError):
    """No usable answer came: refused, timed out, too large, not JSON, or the key was not accepted."""


class SwitchRefused(SchedulerApiError):
    """The server keeps its policy. `status` is the HTTP status that says why; `current` its policy then, when known."""

    def __init__(self, text: str, status: int, current: dict[str, Any] | None = None, field: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.current = current
        self.field = field


class RegistrationRefused(SchedulerApiError):
    """The name or URL cannot be registered; `field` names the input at fault."""

    def __init__(self, text: str, field: str = "base_url") -> None:
        super().__init__(text)
        self.field = field
