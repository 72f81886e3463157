"""Noting what became of a policy without this console: in its rows, in the trail, and as a drift to be settled by choice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.audit.service import SEEN
from scheduler_api.kinds.fields import Json, count, mapping, text
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from scheduler_api.policies import switching
from scheduler_api.policies.drift import Happened, Known, judge
from scheduler_api.policies.models import PolicyDrift, PolicyGuard, PolicySeen

SERVER, UNKNOWN = "the server", "unknown"
_OWN_WITHIN = timedelta(minutes=5)
_ACTORS = {Happened.DEADLINE: SERVER, Happened.RESTART: SERVER, Happened.ELSEWHERE: UNKNOWN}
_ACTIONS = {Happened.DEADLINE: "policy.reverted", Happened.RESTART: "policy.drifted", Happened.ELSEWHERE: "policy.drifted"}


def look(server: Server, policy: Json, started_at: float | None) -> Happened:
    """Compares a policy, as the observer sees it, with what is known, and notes what differs. Raises DatabaseError."""
    with transaction.atomic():
        seen = PolicySeen.objects.select_for_update().filter(server=server).first()
        known = None if seen is None else Known(seen.version, seen.requested, seen.reverts_to, seen.started_at)
        if known is not None and policy["version"] > known.version and _own(server, policy["version"]):
            happened = Happened.LEARNED
        else:
            happened = judge(known, policy, started_at)
        if happened is Happened.SAME:
            return happened
        switching.know(server, policy, started_at)
        if known is not None and happened is not Happened.LEARNED:
            _note(server, known, policy, happened)
        return happened


def _own(server: Server, version: int) -> bool:
    """Whether a switch of this console led to this version; one that failed to read it back counts."""
    rows = PolicyChange.objects.filter(server=server, version=version, at__gte=timezone.now() - _OWN_WITHIN)
    return rows.exclude(outcome=PolicyOutcome.SEEN).exists()


def _note(server: Server, known: Known, policy: Json, happened: Happened) -> None:
    expected = dict(known.requested if happened is not Happened.RESTART else known.stays)
    found = mapping(policy["requested"])
    changes = {name: value for name, value in found.items() if expected.get(name) != value}
    row = PolicyChange(
        server=server, actor_name=_ACTORS[happened], reason=_reason(policy, happened)[:500], old=expected, changes=changes,
        outcome=PolicyOutcome.SEEN,
    )  # fmt: skip
    switching.note(row, policy)
    row.save()
    audit.record(
        _ACTIONS[happened],
        switching.words(row) or "the same policy again",
        server=server,
        actor_name=row.actor_name,
        before={name: expected.get(name) for name in changes},
        after={"found": changes, "version": row.version},
        why=row.reason,
        outcome=SEEN,
        ref=f"policychange {row.pk}",
    )
    _end_guards(server, count(policy.get("version")) or 0, row.reason)
    _settle(server, row.actor_name, PolicyDrift.State.SUPERSEDED)
    if happened is not Happened.DEADLINE and changes:
        PolicyDrift.objects.create(
            server=server,
            found_at=timezone.now(),
            cause=PolicyDrift.Cause(happened.value),
            expected=expected,
            found=found,
            version=row.version or 0,
            reason=text(policy.get("reason"))[:500],
        )


def _reason(policy: Json, happened: Happened) -> str:
    if happened is Happened.DEADLINE:
        return "went back at its deadline"
    if happened is Happened.RESTART:
        return "it was started again, and has the policy that it starts with"
    said = text(policy.get("reason"))
    return f"changed from elsewhere{f', with the reason: {said}' if said else ', without a reason'}"


def _end_guards(server: Server, version: int, why: str) -> None:
    PolicyGuard.objects.filter(server=server, state=PolicyGuard.State.WATCHING).exclude(version=version).update(
        state=PolicyGuard.State.ENDED, ended_at=timezone.now(), text=why[:500]
    )


def _settle(server: Server, by: str, state: str) -> int:
    return PolicyDrift.objects.filter(server=server, state=PolicyDrift.State.OPEN).update(
        state=state, settled_at=timezone.now(), settled_by=by
    )


def open_drift(server_id: int) -> PolicyDrift | None:
    return PolicyDrift.objects.filter(server_id=server_id, state=PolicyDrift.State.OPEN).first()


def open_drifts(ids: list[int]) -> dict[int, PolicyDrift]:
    """By server."""
    return {drift.server_id: drift for drift in PolicyDrift.objects.filter(server_id__in=ids, state=PolicyDrift.State.OPEN)}


def reapply(drift: PolicyDrift, by: User) -> PolicyChange:
    """Sets what was there before the drift, at the version that was found. Raises as `switch` does."""
    changes: dict[str, Any] = drift.differences()
    change = switching.switch(
        drift.server,
        changes,
        actor=by,
        actor_name=by.get_username(),
        reason=f"as it was before: {drift.get_cause_display().lower()}",
        expected_version=drift.version,
        action="policy.reapplied",
    )
    PolicyDrift.objects.filter(pk=drift.pk).update(state=PolicyDrift.State.REAPPLIED)
    return change


def leave(drift: PolicyDrift, by: User) -> None:
    """The policy stays as it was found."""
    with transaction.atomic():
        if _settle(drift.server, by.get_username(), PolicyDrift.State.LEFT):
            audit.record(
                "policy.drift_accepted", "the policy stays as it was found", server=drift.server, actor=by, after=drift.found
            )
