"""The switch: asked with the version that was seen, read back, and written down whatever came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from time import time
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.audit.service import DONE
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.kinds.fields import Json, count, mapping, number
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from scheduler_api.policies.asking import Wish, patch, read_back, read_policy
from scheduler_api.policies.guards import Condition, as_json
from scheduler_api.policies.models import PolicyDrift, PolicyGuard, PolicySeen

LONGEST_REASON = 500
#: A guard rail's reach: the deadline of a guarded change that named none.
GUARDED_TTL_S = 3600.0
_AUDITED = {PolicyOutcome.APPLIED: DONE}


def switch(
    server: Server,
    changes: Json,
    *,
    actor: User | None,
    actor_name: str,
    reason: str,
    expected_version: int | None = None,
    ttl_s: float | None = None,
    guards: Sequence[Condition] = (),
    without_ttl: bool = False,
    takes_back: bool = False,
    action: str = "policy.switched",
    through: str = "",
) -> PolicyChange:
    """Sets the fields of `changes` and returns the audit row, which is written also when this raises.

    Without `expected_version` the version found just before is taken. With `guards` the observer puts the change back when one of
    them is met; such a change always has a deadline, by which the server itself goes back when the observer is gone too, unless
    `without_ttl` waives it. `takes_back`: it undoes a change, and a deadline that runs under that one stays.

    Raises SwitchRefused (status 409: the policy changed meanwhile, `current` holds it; 422: a field or value is not known; 501:
    this kind cannot switch) and ServerUnreachable.
    """
    if guards and ttl_s is None and not without_ttl:
        ttl_s = GUARDED_TTL_S
    row = PolicyChange(
        server=server, actor=actor, actor_name=actor_name, reason=reason[:LONGEST_REASON], changes=changes, ttl_s=ttl_s
    )
    found: Json | None = None
    try:
        before = read_policy(server)
        row.old = mapping(before.get("requested"))
        if takes_back:
            ttl_s = row.ttl_s = still_to_run(before, changes, time())
        wish = Wish(changes, count(before.get("version")) if expected_version is None else expected_version, ttl_s, row.reason)
        note(row, patch(server, wish, dry=False))
        found = read_back(server, changes)
        note(row, found)
        row.outcome = PolicyOutcome.APPLIED
    except SwitchRefused as refusal:
        accepted = row.version is not None
        row.outcome, row.error = (PolicyOutcome.FAILED if accepted else PolicyOutcome.REFUSED), refusal.text
        raise
    except ServerUnreachable as failure:
        row.outcome, row.error = PolicyOutcome.FAILED, failure.text
        raise
    finally:
        row.outcome = row.outcome or PolicyOutcome.FAILED
        keep(row, found, guards, action, through)
    return row


def still_to_run(policy: Json, changes: Json, now: float) -> float | None:
    """For how long what `changes` leads back to is itself set for a time, in seconds: a deadline that runs must not end because a
    later change is taken back. None where nothing goes back any more."""
    reverts_at, back = number(policy.get("reverts_at")), mapping(policy.get("reverts_to"))
    after = mapping(policy.get("requested")) | changes
    if reverts_at is None or all(after.get(name) == value for name, value in back.items()):
        return None
    return max(1.0, reverts_at - now)


def note(row: PolicyChange, policy: Json) -> None:
    """What the server reports after the change."""
    row.new = mapping(policy.get("effective"))
    row.version = count(policy.get("version"))
    row.effective_from_iteration = count(policy.get("effective_from_iteration"))


def words(change: PolicyChange) -> str:
    """ "phase: continuous to barrier, prefill chunk: off to 512"."""
    return ", ".join(
        f"{name.replace('_', ' ')}: {_word(change.old.get(name))} to {_word(value)}" for name, value in change.changes.items()
    )


def _word(value: Any) -> str:
    return "off" if value is None else str(value).replace("_", " ")


def keep(
    row: PolicyChange, policy: Json | None, guards: Sequence[Condition] = (), action: str = "policy.switched", through: str = ""
) -> None:
    """The row, its place in the trail, what the console now knows, and the guard rail: all of it or nothing."""
    with transaction.atomic():
        row.save()
        audit.record(
            action,
            words(row) or "the same policy again",
            server=row.server,
            actor=row.actor,
            actor_name=row.actor_name,
            before={name: row.old.get(name) for name in row.changes},
            after={"asked": row.changes, "in_force": {name: row.new.get(name) for name in row.changes} if row.new else None}
            | {name: value for name, value in (("version", row.version), ("ttl_s", row.ttl_s), ("error", row.error)) if value},
            why=row.reason,
            outcome=_AUDITED.get(PolicyOutcome(row.outcome), row.outcome),
            ref=f"policychange {row.pk}",
            through=through,
        )
        if row.outcome == PolicyOutcome.APPLIED:
            PolicyGuard.objects.filter(server=row.server, state=PolicyGuard.State.WATCHING).update(
                state=PolicyGuard.State.ENDED, ended_at=timezone.now(), text=f"changed again by {row.actor_name}"
            )
            PolicyDrift.objects.filter(server=row.server, state=PolicyDrift.State.OPEN).update(
                state=PolicyDrift.State.SUPERSEDED, settled_at=timezone.now(), settled_by=row.actor_name
            )
        if policy is not None:
            know(row.server, policy)
            if guards:
                _arm(row, policy, guards)


def know(server: Server, policy: Json, started_at: float | None = None) -> None:
    """What the console knows the policy to be. Without `started_at` the process is the one that was known."""
    values = {
        "version": count(policy.get("version")) or 0,
        "requested": mapping(policy.get("requested")),
        "reverts_to": policy.get("reverts_to") if policy.get("reverts_at") is not None else None,
    }
    PolicySeen.objects.update_or_create(
        server=server, defaults=values | ({} if started_at is None else {"started_at": started_at})
    )


def _arm(row: PolicyChange, policy: Json, guards: Sequence[Condition]) -> None:
    PolicyGuard.objects.create(
        server=row.server,
        change=row,
        version=row.version or 0,
        changed_at=number(policy.get("changed_at")) or 0.0,
        back_to={name: row.old[name] for name in row.changes if name in row.old},
        conditions=[as_json(each) for each in guards],
        until=None if row.ttl_s is None else timezone.now() + timedelta(seconds=row.ttl_s),
    )
