"""A fake of what switches policies, for tests of what stands in front of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from tests.support.sample_states import Json


@dataclass
class FakePolicies:
    """Stands in for scheduler_api.policies: keeps one policy, notes what it was asked."""

    policy: Json
    asked: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def read_policy(self, server: Server) -> Json:
        if isinstance(self.error, ServerUnreachable):
            raise self.error
        return self.policy

    def dry_run(self, server: Server, changes: Json, expected_version: int | None = None) -> Json:
        if self.error:
            raise self.error
        return self.after(changes)

    def switch(self, server: Server, changes: Json, *, actor: User, actor_name: str, **more: Any) -> PolicyChange:
        self.asked.append({"changes": changes, "actor_name": actor_name, **more})
        if self.error:
            raise self.error
        old, self.policy = self.policy["requested"], self.after(changes)
        return PolicyChange.objects.create(
            server=server, actor=actor, actor_name=actor_name, reason=more["reason"], old=old, changes=changes,
            new=self.policy["effective"], version=self.policy["version"], effective_from_iteration=4711, ttl_s=more.get("ttl_s"),
            outcome=PolicyOutcome.APPLIED,
        )  # fmt: skip

    def after(self, changes: Json) -> Json:
        requested = self.policy["requested"] | changes
        return self.policy | {"version": self.policy["version"] + 1, "requested": requested, "effective": requested}
