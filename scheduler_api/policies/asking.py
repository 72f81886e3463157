"""What a server says about its policy, and what it answers to a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler_api import wire
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.kinds import why_not_switched
from scheduler_api.kinds.fields import Json, count, mapping, text
from scheduler_api.models import Server
from scheduler_api.targets import Target


def target_of(server: Server) -> Target:
    return Target(server.base_url, server.api_key)


def read_policy(server: Server) -> dict[str, Any]:
    """The `policy` of GET /scheduler. Raises SwitchRefused for a kind that has none, ServerUnreachable."""
    require_switching(server)
    answer = wire.call(target_of(server), "GET", "/scheduler")
    policy = mapping(_value(server, answer)).get("policy") if answer.status == 200 else None
    if not isinstance(policy, dict):
        raise ServerUnreachable(_odd_answer(server, answer))
    return policy


def dry_run(server: Server, changes: Json, expected_version: int | None = None) -> dict[str, Any]:
    """What the policy would be. Raises as `switch` does; writes no audit row."""
    require_switching(server)
    version = count(read_policy(server).get("version")) if expected_version is None else expected_version
    return patch(server, Wish(changes, version, None, ""), dry=True)


@dataclass(frozen=True, slots=True)
class Wish:
    changes: Json
    expected_version: int | None
    ttl_s: float | None
    reason: str

    def body(self) -> Json:
        optional = {"expected_version": self.expected_version, "ttl_s": self.ttl_s}
        return {"set": self.changes, "reason": self.reason} | {
            name: value for name, value in optional.items() if value is not None
        }


def require_switching(server: Server) -> None:
    """Raises SwitchRefused for a kind whose policy cannot be switched."""
    if why_not := why_not_switched(server.kind):
        raise SwitchRefused(why_not, 501)


def patch(server: Server, wish: Wish, *, dry: bool) -> Json:
    """The policy after PATCH /scheduler/policy. Raises as `switch` does."""
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


def read_back(server: Server, changes: Json) -> Json:
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


def _current(value: Json) -> Json | None:
    """The policy in a 409's body, which holds it bare or beside the error's message."""
    for found in (value, value.get("policy"), mapping(value.get("error")).get("policy")):
        if isinstance(found, dict) and "version" in found:
            return found
    return None


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
