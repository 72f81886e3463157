"""How live state is put into words and marks: pure, shared by pages and partials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

type State = Mapping[str, Any]

MINUTE, HOUR, DAY = 60, 3600, 86400
#: An observer tells of each server every second: what is older than this, nobody watches any more.
OLD_S = 15.0

# health state -> mark of the sprite, tone, word, rank (low = more trouble)
HEALTH: dict[str, tuple[str, str, str, int]] = {
    "down": ("down", "is-bad", "Down", 0),
    "not_serving": ("stuck", "is-bad", "Up but not serving", 1),
    "unauthorised": ("lock", "is-warn", "Unauthorised", 2),
    "silent": ("silent", "is-warn", "Busy, no answer", 3),
    "unknown": ("unknown", "q", "Unknown", 4),
    "loading": ("load", "q", "Loading", 5),
    "up": ("up", "q", "Serving", 6),
    "sleeping": ("sleep", "q", "Asleep", 7),
}
# The server answers, so what it tells is of now.
ANSWERS = frozenset({"up", "not_serving", "sleeping"})
# Their words already say for how long.
TIMED = frozenset({"silent", "not_serving"})
STATE_MARKS = {"idle": "idle", "queued": "queued", "waiting": "waiting", "prompt": "prompt", "held": "held", "generating": "gen"}


@dataclass(frozen=True, slots=True)
class Health:
    """A server's health as a mark, a tone (CSS class), a word, and a sentence beside it."""

    mark: str
    tone: str
    word: str
    detail: str
    rank: int


def health_of(state: State | None) -> Health:
    if state is None:
        return Health("unknown", "q", "Unknown", "no observer reports on it", HEALTH["unknown"][3])
    told = state["health"]
    mark, tone, word, rank = HEALTH.get(told["state"], HEALTH["unknown"])
    return Health(mark, tone, told.get("text") or word, told.get("detail") or "", rank)


def of_now(state: State | None, now: float) -> State | None:
    """The state; with an unknown health where its observer has told nothing for a while, since it may be anything by now."""
    if state is None or now - state["t"] <= OLD_S:
        return state
    last = health_of(state).word
    health = {
        "state": "unknown",
        "text": "Not reported",
        "detail": f"no observer tells of it now; it was last seen as: {last}",
        "since": state["t"],
        "seen_at": state["health"].get("seen_at"),
    }
    return {**state, "health": health}


def states_of_now(states: Mapping[int, State], now: float) -> dict[int, State]:
    return {pk: told for pk, state in states.items() if (told := of_now(state, now)) is not None}


def grouped(value: float | None, places: int = 0) -> str:
    """Digits grouped from 10,000 up, a true minus sign; "" for None."""
    if value is None:
        return ""
    text = f"{abs(value):,.{places}f}" if abs(value) >= 10_000 else f"{abs(value):.{places}f}"
    return ("\u2212" if value < 0 else "") + text


def unbroken(sentence: str) -> str:
    """For pages: no line begins with the sign of per cent."""
    return sentence.replace(" %", "\u00a0%")


def duration(seconds: float | None) -> str:
    """0.4 s, 12 s, 4 min 12 s, 2 h 5 min, 3 d 4 h, 12 d; "" for None."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        rest = whole % MINUTE if whole < 10 * MINUTE else 0
        return f"{whole // MINUTE} min {rest} s" if rest else f"{whole // MINUTE} min"
    if whole < DAY:
        rest = whole % HOUR // MINUTE
        return f"{whole // HOUR} h {rest} min" if rest else f"{whole // HOUR} h"
    rest = whole % DAY // HOUR if whole < 10 * DAY else 0
    return f"{whole // DAY} d {rest} h" if rest else f"{whole // DAY} d"


def rail(servers: Iterable[Any], states: Mapping[int, State]) -> list[dict[str, Any]]:
    """Servers with their health, worst first, then by name."""
    entries = [{"server": server, "health": health_of(states.get(server.pk))} for server in servers]
    return sorted(entries, key=lambda entry: (entry["health"].rank, entry["server"].name))
