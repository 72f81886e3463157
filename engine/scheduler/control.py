"""Who asked for which policy, what is in force, and the way back when a change carried a deadline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.scheduler.policy import ANY_DRAFTS, Drafts, Policy, PolicyInvalid, changed, resolve, table

MAX_TTL_S = 30 * 86400.0
MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The policy object of GET /scheduler. Times are seconds on the caller's clock."""

    version: int
    requested: Policy
    effective: Policy
    reasons: dict[str, str] = field(default_factory=dict)
    effective_from_iteration: int = 1
    changed_at: float = 0.0
    reverts_at: float | None = None
    reverts_to: Policy | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, object]:
        return {
            "version": self.version,
            "requested": self.requested.as_dict(),
            "effective": self.effective.as_dict(),
            "reasons": dict(self.reasons),
            "effective_from_iteration": self.effective_from_iteration,
            "changed_at": self.changed_at,
            "reverts_at": self.reverts_at,
            "reverts_to": None if self.reverts_to is None else self.reverts_to.as_dict(),
            "reason": self.reason,
        }


class PolicyConflict(Exception):
    """Somebody else changed the policy first; `current` is what stands now."""

    def __init__(self, current: PolicyState) -> None:
        super().__init__(f"the policy is at version {current.version}")
        self.current = current


class PolicyControl:
    """Holds the one policy state. `next_iteration` is the first iteration that a change made now can reach."""

    def __init__(self, policy: Policy, kv_mode: str, n_batch: int, now: float, drafts: Drafts = ANY_DRAFTS) -> None:
        self._kv_mode = kv_mode
        self._drafts = drafts
        self.specs = table(n_batch)
        effective, reasons = resolve(policy, kv_mode, drafts)
        self.state = PolicyState(1, policy, effective, reasons, changed_at=now)

    def change(
        self,
        changes: Mapping[str, object],
        *,
        expected_version: int,
        next_iteration: int,
        now: float,
        ttl_s: float | None,
        reason: str,
        dry_run: bool,
    ) -> PolicyState:
        self.tick(now, next_iteration)
        requested = changed(self.state.requested, changes, self.specs)
        _check_ttl(ttl_s)
        if len(reason) > MAX_REASON:
            raise PolicyInvalid("reason", f"reason must have at most {MAX_REASON} characters")
        if expected_version != self.state.version:
            raise PolicyConflict(self.state)
        reverts_at, reverts_to = None, None
        if ttl_s is not None:
            reverts_at, reverts_to = now + ttl_s, self.state.reverts_to or self.state.requested
        state = replace(self._stand(requested, next_iteration, now, reason), reverts_at=reverts_at, reverts_to=reverts_to)
        if not dry_run:
            self.state = state
        return state

    def tick(self, now: float, next_iteration: int) -> None:
        """Goes back when the deadline has passed."""
        state = self.state
        if state.reverts_at is not None and state.reverts_to is not None and now >= state.reverts_at:
            self.state = self._stand(state.reverts_to, next_iteration, now, "went back at its deadline")

    def _stand(self, requested: Policy, next_iteration: int, now: float, reason: str) -> PolicyState:
        effective, reasons = resolve(requested, self._kv_mode, self._drafts)
        return PolicyState(self.state.version + 1, requested, effective, reasons, next_iteration, now, reason=reason)


def _check_ttl(ttl_s: float | None) -> None:
    if ttl_s is None:
        return
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not math.isfinite(ttl_s) or not 0 < ttl_s <= MAX_TTL_S:
        raise PolicyInvalid("ttl_s", f"ttl_s must be a number of seconds above 0 and at most {MAX_TTL_S:.0f}, or null")
