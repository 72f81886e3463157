"""Putting back the policy that was in force before a run, unless somebody else has changed it meanwhile."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from scheduler_api import policies
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from workers.models import Run

log = logging.getLogger(__name__)

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restored:
    """`done` None: the run had changed nothing. `text`: why the policy is not as it was found, empty otherwise."""

    done: bool | None
    text: str = ""


def actor_name(run_id: int) -> str:
    return f"run {run_id}"


def touched_fields(run: Run) -> list[str]:
    return sorted({*run.policy_a, *run.policy_b})


def arm_policy(run: Run, arm: dict[str, Any]) -> Json:
    """Every field that either arm sets, so that nothing of one arm stays behind in the other."""
    found = (run.policy_before or {}).get("requested", {})
    return {field: arm.get(field, found.get(field)) for field in touched_fields(run) if field in arm or field in found}


def restore(run: Run, reason: str = "the policy found before it") -> Restored:
    """Never raises; what went wrong stands in `text`."""
    if run.policy_before is None or run.policy_version is None:
        return Restored(None)
    try:
        return _restore(run, run.policy_before, reason)
    except ServerUnreachable as error:
        return Restored(False, f"The policy could not be put back: {error.text} The server goes back by itself at its deadline.")
    except SwitchRefused as error:
        return Restored(False, f"The policy could not be put back: {error.text}")
    except Exception:
        log.exception("Run %d: the policy could not be put back", run.pk)
        return Restored(False, "The policy could not be put back for an unexpected reason; the worker's log has it.")


def _restore(run: Run, before: Json, reason: str) -> Restored:
    current = policies.read_policy(run.server)
    wanted, ttl_s = _target(run, before, time.time())
    if not _is_ours(run, current):
        if _matches(current, wanted):
            return Restored(True)
        return Restored(
            False, f"Somebody else changed the policy during the run (version {current.get('version')}), so it was left as it is."
        )
    policies.switch(
        run.server,
        wanted,
        actor=run.created_by,
        actor_name=actor_name(run.pk),
        reason=f"{actor_name(run.pk)}, {reason}",
        expected_version=current["version"],
        ttl_s=ttl_s,
    )
    return Restored(True)


def _target(run: Run, before: Json, now: float) -> tuple[Json, float | None]:
    """What to set and for how long: a deadline that the policy found had keeps running, or has passed by now."""
    requested, reverts_at = before.get("requested", {}), before.get("reverts_at")
    ttl_s = None
    if reverts_at is not None and before.get("reverts_to"):
        if reverts_at > now:
            ttl_s = reverts_at - now
        else:
            requested = before["reverts_to"]
    return {field: requested[field] for field in touched_fields(run) if field in requested}, ttl_s


def _is_ours(run: Run, current: Json) -> bool:
    """By version, or by the reason when the worker died between a switch and its record."""
    return current.get("version") == run.policy_version or str(current.get("reason", "")).startswith(f"{actor_name(run.pk)},")


def _matches(current: Json, wanted: Json) -> bool:
    requested = current.get("requested", {})
    return all(requested.get(field) == value for field, value in wanted.items())
