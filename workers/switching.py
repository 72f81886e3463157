"""The switches of a run: each with a deadline, so that a console that dies leaves nothing behind, and each read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_api import policies
from scheduler_api.exceptions import SwitchRefused
from workers import lease
from workers.errors import RunFailed
from workers.models import Run
from workers.restore import actor_name, arm_policy

ABOUT_TO = 0  # the version kept before the first switch is sent: from then on something may have to be put back
CONFLICT = 409  # the HTTP status of a switch that came after somebody else's


class Switcher:
    def __init__(self, run: Run, held: str, warn: Callable[[str], None]) -> None:
        self._run = run
        self._held = held
        self._warn = warn
        self.ttl_s = 600.0
        self.count = 0

    def to(self, arm: str, reason: str) -> int:
        """The policy version of the arm from now on. Raises RunFailed, ServerUnreachable, SwitchRefused."""
        run = self._run
        if run.policy_version is None:
            self._keep(ABOUT_TO)
        before = run.policy_before or {}
        wanted = arm_policy(run, run.policy_a if arm == "A" else run.policy_b)
        expected = run.policy_version or before["version"]
        try:
            change = policies.switch(
                run.server,
                wanted,
                actor=run.created_by,
                actor_name=actor_name(run.pk),
                reason=f"{actor_name(run.pk)}, {reason}",
                expected_version=expected,
                ttl_s=self.ttl_s,
            )
        except SwitchRefused as error:
            if error.status == CONFLICT:
                raise RunFailed(_conflict(error.current)) from error
            raise
        if change.version is None:
            raise RunFailed("The server took the policy but did not say which version it is now.")
        self._keep(change.version)
        self.count += 1
        self._read_back(arm, wanted, change.new)
        return int(change.version)

    def resume(self, version: int) -> None:
        """After a restart of the server: its policy is the one that it begins with, and its versions count anew."""
        self._keep(version)

    def _keep(self, version: int) -> None:
        lease.write(self._run.pk, self._held, policy_version=version)
        self._run.policy_version = version

    def _read_back(self, arm: str, wanted: dict[str, Any], effective: dict[str, Any]) -> None:
        for field, value in wanted.items():
            if field in effective and effective[field] != value:
                self._warn(f"Arm {arm}: {field.replace('_', ' ')} {value} was asked for, and {effective[field]} is in effect.")


def _conflict(current: dict[str, Any] | None) -> str:
    version = f" (version {current['version']})" if current and "version" in current else ""
    return f"Somebody else changed the policy during the run{version}, so the run ended and left it as it is."
