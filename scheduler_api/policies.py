"""Switching a server's policy: asked with the version that was seen, read back, and written down whatever came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from scheduler_api import wire
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.kinds import why_not_switched
from scheduler_api.kinds.fields import Json, count, mapping, text
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from scheduler_api.targets import Target

LONGEST_REASON = 500


def target_of(server: Server) -> Target:
    return Target(server.base_url, server.api_key)


def read_policy(server: Server) -> dict[str, Any]:
    """The `policy` of GET /scheduler. Raises SwitchRefused for a kind that has none, ServerUnreachable."""
    _require_switching(server)
    answer = wire.call(target_of(server), "GET", "/scheduler")
    policy = mapping(_value(server, answer)).get("policy") if answer.status == 200 else None
    if not isinstance(policy, dict):
        raise ServerUnreachable(_odd_answer(server, answer))
    return policy


def dry_run(server: Server, changes: Json, expected_version: int | None = None) -> dict[str, Any]:
    """What the policy would be. Raises as `switch` does; writes no audit row."""
    _require_switching(server)
    version = count(read_policy(server).get("version")) if expected_version is None else expected_version
    return _patch(server, _Wish(changes, version, None, ""), dry=True)


def switch(
    server: Server,
    changes: Json,
    *,
    actor: User | None,
    actor_name: str,
    reason: str,
    expected_version: int | None = None,
    ttl_s: float | None = None,
) -> PolicyChange:
    """Sets the fields of `changes` and returns the audit row, which is written also when this raises.

    Without `expected_version` the version found just before is taken. Raises SwitchRefused (status 409: the policy changed
    meanwhile, `current` holds it; 422: a field or value is not known; 501: this kind cannot switch) and ServerUnreachable.
    """
    row = PolicyChange(
        server=server, actor=actor, actor_name=actor_name, reason=reason[:LONGEST_REASON], changes=changes, ttl_s=ttl_s
    )
    try:
        before = read_policy(server)
        row.old = mapping(before.get("requested"))
        wish = _Wish(changes, count(before.get("version")) if expected_version is None else expected_version, ttl_s, row.reason)
        _note(row, _patch(server, wish, dry=False))
        _note(row, _read_back(server, changes))
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
        row.save()
    return row


@dataclass(frozen=True, slots=True)
class _Wish:
    changes: Json
    expected_version: int | None
    ttl_s: float | None
    reason: str

    def body(self) -> Json:
        optional = {"expected_version": self.expected_version, "ttl_s": self.ttl_s}
        return {"set": self.changes, "reason": self.reason} | {
            name: value for name, value in optional.items() if value is not None
        }


def _require_switching(server: Server) -> None:
    if why_not := why_not_switched(server.kind):
        raise SwitchRefused(why_not, 501)


def _patch(server: Server, wish: _Wish, *, dry: bool) -> Json:
    path = "/scheduler/policy" + ("?dry_run=true" if dry else "")
    answer = wire.call(target_of(server), "PATCH", path, json=wish.body())
    value = mapping(_value(server, answer))
    if answer.status == 200 and "version" in value:
        return value
    if answer.status == 409:
        raise SwitchRefused("The policy was changed by someone else meanwhile; nothing was switched.", 409, _current(value))
    if answer.status in (400, 422):
        error = mapping(value.get("error"))
        said = answer.error_message() or "the server did not say why"
        raise SwitchRefused(f"{server.name} refuses this policy: {said}", 422, None, text(error.get("field")))
    if answer.status in (401, 403):
        raise SwitchRefused(f"{server.name} does not accept the registered key.", answer.status)
    raise ServerUnreachable(_odd_answer(server, answer))


def _current(value: Json) -> Json | None:
    """The policy in a 409's body, which holds it bare or beside the error's message."""
    for found in (value, value.get("policy"), mapping(value.get("error")).get("policy")):
        if isinstance(found, dict) and "version" in found:
            return found
    return None


def _read_back(server: Server, changes: Json) -> Json:
    """The policy that the server now reports. Raises SwitchRefused when it does not hold what was asked for."""
    try:
        policy = read_policy(server)
    except ServerUnreachable as failure:
        raise ServerUnreachable(f"The change was accepted, but could not be read back: {failure.text}") from failure
    requested = mapping(policy.get("requested"))
    lost = sorted(name for name, value in changes.items() if requested.get(name) != value)
    if lost:
        fields = ", ".join(lost)
        raise SwitchRefused(f"The change was accepted, but {fields} was changed again at once; nothing was undone.", 409, policy)
    return policy


def _note(row: PolicyChange, policy: Json) -> None:
    row.new = mapping(policy.get("effective"))
    row.version = count(policy.get("version"))
    row.effective_from_iteration = count(policy.get("effective_from_iteration"))


def _value(server: Server, answer: wire.Answer) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise ServerUnreachable(_odd_answer(server, answer)) from None


def _odd_answer(server: Server, answer: wire.Answer) -> str:
    said = answer.error_message()
    if answer.status in (401, 403):
        return f"{server.name} does not accept the registered key."
    return f"{server.name} answers {answer.status}, which a policy request does not expect{': ' + said if said else '.'}"
