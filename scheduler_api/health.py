"""A server's health in an operator's words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Health(StrEnum):
    UP = "up"
    LOADING = "loading"
    UNAUTHORISED = "unauthorised"
    SILENT = "silent"
    SLEEPING = "sleeping"
    NOT_SERVING = "not_serving"
    DOWN = "down"
    UNKNOWN = "unknown"


#: What is still known of the slots in these states; in the others nothing is.
SEEN = frozenset({Health.UP, Health.SILENT, Health.SLEEPING, Health.NOT_SERVING})
#: The server answers, and what it tells is of now.
ANSWERS = SEEN - {Health.SILENT}
#: A server that answers and whose work gets no token for this long does not serve. Where batches were seen to take long, as on a
#: slow machine, it is twice as long as the longest, up to a limit.
NOT_SERVING_AFTER_S = 60.0
LONGEST_NOT_SERVING_AFTER_S = 600.0


def not_serving_after(longest_stand_s: float) -> float:
    """Seconds; `longest_stand_s` is the longest time without a token that ended by itself."""
    return max(NOT_SERVING_AFTER_S, min(LONGEST_NOT_SERVING_AFTER_S, 2 * longest_stand_s))


@dataclass(slots=True)
class Standstill:
    """Work that gets no token. `since` is when it last got one, or began; None without work, or when that is not known."""

    since: float | None = None
    longest_s: float = 0.0

    def note(self, now: float, *, work: bool, progressed: bool) -> None:
        if not work:
            self.since = None
        elif progressed or self.since is None:
            self.longest_s = max(self.longest_s, 0.0 if self.since is None else now - self.since)
            self.since = now

    def lasts(self, now: float) -> bool:
        """Whether it has gone on for too long to be a batch."""
        return self.since is not None and now - self.since >= not_serving_after(self.longest_s)


@dataclass(slots=True)
class HealthRecord:
    """`since` is when the state was entered, `seen_at` the last answer of any kind, `stood_since` when work last got a token
    before it stood still; Unix seconds, the console's clock."""

    state: Health = Health.UNKNOWN
    reason: str = ""
    detail: str = ""
    since: float = 0.0
    seen_at: float | None = None
    stood_since: float | None = None

    def enter(self, state: Health, now: float, reason: str = "", detail: str = "", *, seen: bool) -> None:
        if state is not self.state:
            self.since = now
        self.state, self.reason, self.detail = state, reason, detail
        if seen:
            self.seen_at = now

    def text(self, now: float, busy: bool | None) -> str:
        """`busy`: whether any slot has work; None when that is unknown."""
        match self.state:
            case Health.UP:
                return self.reason or ("Up" if busy is None else "Serving" if busy else "Idle")
            case Health.LOADING:
                return self.reason or "Loading the model"
            case Health.UNAUTHORISED:
                return self.reason or "Key not accepted"
            case Health.SILENT:
                return f"Busy, no answer for {duration(now - (self.seen_at or self.since))}"
            case Health.SLEEPING:
                return self.reason or "Asleep"
            case Health.NOT_SERVING:
                return self.reason or standing_words(now - (self.stood_since or self.since))
            case Health.DOWN:
                return f"Down: {self.reason}" if self.reason else "Down"
            case Health.UNKNOWN:
                return self.reason or "Not observed yet"

    def as_json(self, now: float, busy: bool | None) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "text": self.text(now, busy),
            "detail": self.detail,
            "since": self.since,
            "seen_at": self.seen_at,
        }


def standing_words(seconds: float) -> str:
    return f"Up but not serving, no token for {duration(seconds)}"


def duration(seconds: float) -> str:
    """ "42 s", "3 min", "2 h": whole, rounded down."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
