"""From findings to alerts that open and close: an alert opens once its finding has held for a while, and closes once it was gone
for a while. What is not known changes nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_api.alerts.conditions import Finding, Found
from scheduler_api.alerts.kinds import Spec

#: Looks further apart than this do not show that anything held in between.
LOOK_GAP_S = 10.0
#: Of one rule on one server: a server where all wait would else open, and send, one for each client.
MOST_OPEN = 20

type Key = tuple[int, int | None, str]  # rule, server, what the finding is about


@dataclass(frozen=True, slots=True)
class Opened:
    key: Key
    began: float
    at: float
    finding: Finding


@dataclass(frozen=True, slots=True)
class Closed:
    """`why`: "" when what was found is gone."""

    key: Key
    at: float
    peak_s: float
    why: str = ""


type Transition = Opened | Closed


@dataclass(slots=True)
class Track:
    began: float
    finding: Finding | None = None
    open: bool = False
    peak_s: float = 0.0
    seen_at: float = 0.0
    gone_since: float | None = None


@dataclass(slots=True)
class Tracks:
    """All rules and servers. `step` is given one rule's findings on one server at a time."""

    tracks: dict[Key, Track] = field(default_factory=dict)
    looked_at: dict[tuple[int, int | None], float] = field(default_factory=dict)

    def adopt(self, key: Key, began: float, peak_s: float) -> None:
        """An alert that is open already, as an earlier observer left it."""
        self.tracks[key] = Track(began, open=True, peak_s=peak_s, seen_at=began)

    def step(self, rule: Spec, server_id: int | None, found: Found, now: float) -> list[Transition]:
        pair = (rule.id, server_id)
        if found is None or now - self.looked_at.get(pair, now) > LOOK_GAP_S:
            self._interrupt(pair)
        if found is None:
            self.looked_at.pop(pair, None)
            return []
        self.looked_at[pair] = now
        by_key = {(rule.id, server_id, finding.key): finding for finding in found}
        mine = [key for key in self.tracks if key[:2] == pair]
        room = MOST_OPEN - sum(self.tracks[key].open for key in mine)
        moved: list[Transition] = []
        for key in sorted({*by_key, *mine}, key=lambda each: each[2]):
            each = self._one(key, by_key.get(key), rule, now, room > 0)
            if each is not None:
                moved.append(each)
                room -= isinstance(each, Opened)
        return moved

    def _interrupt(self, pair: tuple[int, int | None]) -> None:
        """Nothing was known for a while: what had not opened begins anew, what is open stays."""
        for key in [key for key in self.tracks if key[:2] == pair]:
            if not self.tracks[key].open:
                del self.tracks[key]
            else:
                self.tracks[key].gone_since = None

    def _one(self, key: Key, finding: Finding | None, rule: Spec, now: float, room: bool) -> Transition | None:
        track = self.tracks.get(key)
        if track is None or not track.open:
            return self._before(key, finding, rule, now, room)
        if finding is not None:
            track.finding, track.seen_at, track.gone_since = finding, now, None
            track.peak_s = max(track.peak_s, finding.value_s)
            return None
        track.gone_since = track.gone_since if track.gone_since is not None else now
        if now - track.gone_since < rule.clear_s:
            return None
        del self.tracks[key]
        return Closed(key, now, track.peak_s)

    def _before(self, key: Key, finding: Finding | None, rule: Spec, now: float, room: bool) -> Transition | None:
        if finding is None or not finding.over:
            self.tracks.pop(key, None)
            return None
        track = self.tracks.setdefault(key, Track(now))
        track.finding, track.seen_at, track.peak_s = finding, now, max(track.peak_s, finding.value_s)
        if now - track.began < rule.for_s or not room:
            return None
        track.open = True
        return Opened(key, track.began, now, finding)

    def close_others(self, kept: Iterable[tuple[int, int | None]], now: float, why: str) -> list[Transition]:
        """Closes what belongs to no rule and server that is still looked at."""
        pairs = set(kept)
        gone = [key for key in self.tracks if key[:2] not in pairs]
        closed = [Closed(key, now, self.tracks[key].peak_s, why) for key in gone if self.tracks[key].open]
        for key in gone:
            del self.tracks[key]
        return [*closed]

    def open(self) -> dict[Key, Track]:
        return {key: track for key, track in self.tracks.items() if track.open}
