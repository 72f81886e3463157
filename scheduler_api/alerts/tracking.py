"""From findings to alerts that open and close: an alert opens once its finding has held for a while, and closes once it was gone
for a while. What is not known changes nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler_api.alerts.conditions import Finding, Found
from scheduler_api.alerts.kinds import Spec

#: Looks further apart than this do not show that anything held in between.
LOOK_GAP_S = 10.0
#: Of one rule on one server: a server where all wait would else open, and send, one for each client.
MOST_OPEN = 20

type Pair = tuple[int, int | None]  # rule, server
type Key = tuple[int, int | None, str]  # and what the finding is about


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

    tracks: dict[Pair, dict[str, Track]] = field(default_factory=dict)
    looked_at: dict[Pair, float] = field(default_factory=dict)

    def adopt(self, key: Key, began: float, peak_s: float) -> None:
        """An alert that is open already, as an earlier observer left it."""
        self.tracks.setdefault(key[:2], {})[key[2]] = Track(began, open=True, peak_s=peak_s, seen_at=began)

    def step(self, rule: Spec, server_id: int | None, found: Found, now: float) -> list[Transition]:
        pair = (rule.id, server_id)
        mine = self.tracks.get(pair, {})
        if mine and (found is None or now - self.looked_at.get(pair, now) > LOOK_GAP_S):
            mine = self.tracks[pair] = _interrupted(mine)
        if found is None:
            self.looked_at.pop(pair, None)
            return []
        self.looked_at[pair] = now
        if not found and not mine:
            return []
        return self._step(rule, pair, {finding.key: finding for finding in found}, now)

    def _step(self, rule: Spec, pair: Pair, by_key: Mapping[str, Finding], now: float) -> list[Transition]:
        mine = self.tracks.setdefault(pair, {})
        room = MOST_OPEN - sum(track.open for track in mine.values())
        moved: list[Transition] = []
        for about in sorted({*by_key, *mine}):
            finding, track, key = by_key.get(about), mine.get(about), (*pair, about)
            if track is not None and track.open:
                each = _while_open(mine, key, track, finding, rule, now)
            else:
                each = _before(mine, key, finding, rule, now, room > 0)
            if each is not None:
                moved.append(each)
                room -= isinstance(each, Opened)
        return moved

    def close_others(self, kept: Iterable[Pair], now: float, why: str) -> list[Transition]:
        """Closes what belongs to no rule and server that is still looked at."""
        closed: list[Transition] = []
        for pair in self.tracks.keys() - set(kept):
            gone = self.tracks.pop(pair)
            closed += [Closed((*pair, about), now, track.peak_s, why) for about, track in gone.items() if track.open]
        return closed

    def open(self) -> dict[Key, Track]:
        return {(*pair, about): track for pair, mine in self.tracks.items() for about, track in mine.items() if track.open}


def _interrupted(mine: Mapping[str, Track]) -> dict[str, Track]:
    """Nothing was known for a while: what had not opened begins anew, what is open stays."""
    kept = {about: track for about, track in mine.items() if track.open}
    for track in kept.values():
        track.gone_since = None
    return kept


def _while_open(
    mine: dict[str, Track], key: Key, track: Track, finding: Finding | None, rule: Spec, now: float
) -> Transition | None:
    if finding is not None:
        track.finding, track.seen_at, track.gone_since = finding, now, None
        track.peak_s = max(track.peak_s, finding.value_s)
        return None
    track.gone_since = track.gone_since if track.gone_since is not None else now
    if now - track.gone_since < rule.clear_s:
        return None
    del mine[key[2]]
    return Closed(key, now, track.peak_s)


def _before(mine: dict[str, Track], key: Key, finding: Finding | None, rule: Spec, now: float, room: bool) -> Transition | None:
    if finding is None or not finding.over:
        mine.pop(key[2], None)
        return None
    track = mine.setdefault(key[2], Track(now))
    track.finding, track.seen_at, track.peak_s = finding, now, max(track.peak_s, finding.value_s)
    if now - track.began < rule.for_s or not room:
        return None
    track.open = True
    return Opened(key, track.began, now, finding)
