"""What can go wrong at a request.

ClientError
├── Refused      the console answered with a problem
│   └── NotFound     404: it is not there, or not for this token to see
└── Unreachable  no usable answer came
"""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """`text` is one sentence for whoever reads it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Refused(ClientError):
    """`problem` is the whole problem object (RFC 9457); `retry_after_s` is set for 429."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"The console answered {status}."))
        self.status, self.problem = status, problem

    @property
    def kind(self) -> str:
        """The word of its type, such as "version-conflict"; "" for those that say no more than their status."""
        return str(self.problem.get("type", "")).removeprefix("about:blank").rpartition(":")[2]

    @property
    def field(self) -> str:
        return str(self.problem.get("field") or "")

    @property
    def retry_after_s(self) -> int | None:
        value = self.problem.get("retry_after_s")
        return value if isinstance(value, int) else None


class NotFound(Refused):
    pass


class Unreachable(ClientError):
    pass
