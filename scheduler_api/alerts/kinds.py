"""The kinds of rules: what each looks at, and the values that a new one begins with. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    DOWN = "down"
    NOT_SERVING = "not_serving"
    STUCK_SLOT = "stuck_slot"
    STARVING = "starving"
    QUEUE_AGE = "queue_age"
    COHORT_HOLD = "cohort_hold"
    OBSERVER_LOST = "observer_lost"
    GUARD_RAIL = "guard_rail"


@dataclass(frozen=True, slots=True)
class Definition:
    """`threshold`: what the threshold counts, "" where there is none. `for_s` and `clear_s`: how long it must hold before an
    alert opens, and be gone before it closes. All in seconds."""

    label: str
    meaning: str
    threshold: str
    threshold_s: float
    for_s: float
    clear_s: float
    severity: str


DEFINITIONS: dict[Kind, Definition] = {
    Kind.DOWN: Definition(
        "Server down",
        "No connection, or an answer that none of its kind gives. A server that took a request and stays silent counts once its "
        "silence is longer than the threshold.",
        "Silence that counts",
        300.0,
        10.0,
        10.0,
        "critical",
    ),
    Kind.NOT_SERVING: Definition(
        "Up but not serving",
        "It answers, has work, and computes no token: for 60 s, or twice the longest such time that ended by itself.",
        "",
        0.0,
        5.0,
        10.0,
        "critical",
    ),
    Kind.STUCK_SLOT: Definition(
        "Stuck slot",
        "A slot is at its prompt or generates, and neither of its token counts moves for longer than the threshold.",
        "No progress for",
        120.0,
        5.0,
        10.0,
        "critical",
    ),
    Kind.STARVING: Definition(
        "Starving client",
        "A client with work in slots, none of it held, gets no token for longer than the threshold while others get some. Slots "
        "without a client's name count each for itself.",
        "No service for",
        30.0,
        0.0,
        10.0,
        "warning",
    ),
    Kind.QUEUE_AGE: Definition(
        "Queue age",
        "The oldest task without a slot has waited for longer than the threshold.",
        "Oldest waits for",
        60.0,
        5.0,
        15.0,
        "warning",
    ),
    Kind.COHORT_HOLD: Definition(
        "Cohort hold over its cap",
        "A slot with a finished prompt is held by its cohort for longer than the policy's barrier_max_hold_ms. Without that cap "
        "the threshold is one.",
        "Cap without one in the policy",
        60.0,
        2.0,
        10.0,
        "warning",
    ),
    Kind.OBSERVER_LOST: Definition(
        "Observer lost",
        "No observer has reported for longer than the threshold, so no server is watched and no other rule is looked at.",
        "No report for",
        20.0,
        0.0,
        10.0,
        "critical",
    ),
    Kind.GUARD_RAIL: Definition(
        "Guard rail",
        "A guard rail put a change of policy back, or was met and could not. It is news rather than a state: it closes by itself "
        "after 15 min.",
        "",
        0.0,
        0.0,
        900.0,
        "warning",
    ),
}
#: Kinds that are not found in a server's live state: the worker looks for the one, what pulls guard rails tells the other.
NOT_OF_STATE = frozenset({Kind.OBSERVER_LOST, Kind.GUARD_RAIL})

SEVERITIES = (("critical", "critical"), ("warning", "warning"), ("info", "info"))
SEVERITY_RANK = {name: rank for rank, (name, _) in enumerate(SEVERITIES)}


@dataclass(frozen=True, slots=True)
class Spec:
    """A rule as the evaluation needs it. `server_id` None: it is for all servers without a rule of the kind of their own."""

    id: int
    kind: Kind
    server_id: int | None
    threshold_s: float
    for_s: float
    clear_s: float


def in_force(rules: list[Spec], server_id: int) -> list[Spec]:
    """A server's own rules, and those for all servers of the kinds that it has none of."""
    own = [rule for rule in rules if rule.server_id == server_id]
    kinds = {rule.kind for rule in own}
    return [*own, *(rule for rule in rules if rule.server_id is None and rule.kind not in kinds)]
