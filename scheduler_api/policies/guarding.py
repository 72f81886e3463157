"""Guard rails at work: what they read at the moment, and putting a change back when one is met."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import time
from typing import Any

from django.db import transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.alerts import store
from scheduler_api.alerts.conditions import Finding
from scheduler_api.alerts.kinds import DEFINITIONS, Kind
from scheduler_api.alerts.models import Rule
from scheduler_api.alerts.tracking import Closed, Opened
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.policies import guards, switching
from scheduler_api.policies.models import PolicyGuard

logger = logging.getLogger(__name__)

ACTOR = "guard rail"
#: For how long the alert about a revert stays open.
ALERT_S = DEFINITIONS[Kind.GUARD_RAIL].clear_s


@dataclass(frozen=True, slots=True)
class Shown:
    """A condition with what it reads now: `value` is words, `near` whether it is over four fifths of its threshold."""

    words: str
    value: str
    samples: int
    near: bool


def watching() -> list[PolicyGuard]:
    return list(PolicyGuard.objects.filter(state=PolicyGuard.State.WATCHING).select_related("server", "change"))


def conditions_of(guard: PolicyGuard) -> list[guards.Condition]:
    return [guards.from_json(each) for each in guard.conditions]


def shown(guard: PolicyGuard, state: dict[str, Any] | None, now: float) -> list[Shown]:
    return [_shown(each, guard, state, now) for each in conditions_of(guard)]


def _shown(condition: guards.Condition, guard: PolicyGuard, state: dict[str, Any] | None, now: float) -> Shown:
    reading = guards.read(condition, state, guard.changed_at, now) if state is not None else guards.Reading(None, 0)
    told = guards.amount(condition.metric, reading.value) if reading.value is not None else "too little known"
    near = reading.value is not None and reading.value > condition.over * 0.8
    return Shown(guards.words(condition), told, reading.samples, near)


def end(guard: PolicyGuard, why: str) -> None:
    """It watches no more; the policy stays."""
    _settle(guard, PolicyGuard.State.ENDED, why)


def pull(guard: PolicyGuard, why: str, *, last: bool = True) -> bool:
    """Puts the change back, at the version that is watched, and says why wherever it can be seen.

    False when the server could not be reached and this was not the `last` attempt: then it is harmless to try again, since a
    revert that went through all the same has moved the version on.
    """
    try:
        switching.switch(
            guard.server,
            guard.back_to,
            actor=None,
            actor_name=ACTOR,
            reason=f"{why}. It takes back change {guard.change_id} by {guard.change.actor_name}.",
            expected_version=guard.version,
            takes_back=True,
            action="policy.guarded",
        )
    except SwitchRefused as refusal:
        if refusal.status == 409 and refusal.current is not None and refusal.current.get("version") != guard.version:
            _settle(guard, PolicyGuard.State.ENDED, f"{why}, but the policy had been changed already")
            return True
        _failed(guard, why, refusal.text)
    except ServerUnreachable as failure:
        if not last:
            return False
        _failed(guard, why, failure.text)
    else:
        logger.warning("%s: a guard rail put its policy back: %s", guard.server.name, why)
        _settle(guard, PolicyGuard.State.REVERTED, why)
        _alert(guard, f"A guard rail put change {guard.change_id} by {guard.change.actor_name} back: {why}.")
    return True


def _failed(guard: PolicyGuard, why: str, said: str) -> None:
    net = f" The server goes back by itself at {guard.until:%H:%M} UTC." if guard.until is not None else ""
    logger.error("%s: a guard rail could not put its policy back: %s", guard.server.name, said)
    _settle(guard, PolicyGuard.State.FAILED, f"{why}. It could not be put back: {said}{net}")
    _alert(guard, f"A guard rail was met and could not put change {guard.change_id} back: {why}. {said}{net}")


def _settle(guard: PolicyGuard, state: str, text: str) -> None:
    PolicyGuard.objects.filter(pk=guard.pk).exclude(state__in=(PolicyGuard.State.REVERTED, PolicyGuard.State.FAILED)).update(
        state=state, ended_at=timezone.now(), text=text[:500]
    )


def _key(guard: PolicyGuard) -> str:
    return f"guard {guard.pk}"


def _alert(guard: PolicyGuard, text: str) -> None:
    """Opens one under the rule for guard rails; without such a rule in force nobody is told."""
    rules = Rule.objects.filter(kind=Kind.GUARD_RAIL, enabled=True)
    rule = rules.filter(server=guard.server).first() or rules.filter(server=None).first()
    if rule is not None:
        finding = Finding(_key(guard), 1.0, 0.0, text)
        now = time()
        store.write([Opened((rule.pk, guard.server_id, _key(guard)), now, now, finding)])


def close_alerts() -> None:
    """Alerts about reverts are news: they close by themselves after a while."""
    now = timezone.now()
    for guard in PolicyGuard.objects.filter(
        alert_closed=False, state__in=(PolicyGuard.State.REVERTED, PolicyGuard.State.FAILED)
    ).select_related("server"):
        if guard.ended_at is None or (now - guard.ended_at).total_seconds() < ALERT_S:
            continue
        with transaction.atomic():
            for rule_id in Rule.objects.filter(kind=Kind.GUARD_RAIL).values_list("pk", flat=True):
                store.write([Closed((rule_id, guard.server_id, _key(guard)), now.timestamp(), 0.0, "told")])
            PolicyGuard.objects.filter(pk=guard.pk).update(alert_closed=True)


def call_off(guard: PolicyGuard, by: Any) -> None:
    """An operator takes the guard rail off, and keeps the policy."""
    with transaction.atomic():
        _settle(guard, PolicyGuard.State.ENDED, f"taken off by {by.get_username()}")
        audit.record(
            "guard.removed", f"guard rail of change {guard.change_id}", server=guard.server, actor=by, before=guard.conditions
        )
