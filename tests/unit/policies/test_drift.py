"""Who changed a policy: told from what was known and what is there."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.policies.drift import AT_DEADLINE, Happened, Known, judge

BARRIER, PLAIN = {"phase": "barrier"}, {"phase": "continuous"}
KNOWN = Known(5, BARRIER, None, 100.0)
TRIAL = Known(5, BARRIER, PLAIN, 100.0)


def policy(version: int, requested: dict[str, Any], reason: str = "") -> dict[str, Any]:
    return {"version": version, "requested": requested, "reason": reason}


@pytest.mark.parametrize(
    ("known", "now", "started_at", "happened"),
    [
        (None, policy(5, BARRIER), 100.0, Happened.LEARNED),
        (KNOWN, policy(5, BARRIER), 100.0, Happened.SAME),
        (Known(5, BARRIER), policy(5, BARRIER), 100.0, Happened.LEARNED),  # now the process is known too
        (KNOWN, policy(6, PLAIN), 100.0, Happened.ELSEWHERE),
        (KNOWN, policy(6, PLAIN, AT_DEADLINE), 100.0, Happened.ELSEWHERE),  # nothing was set for a time
        (TRIAL, policy(6, PLAIN, AT_DEADLINE), 100.0, Happened.DEADLINE),
        (TRIAL, policy(6, PLAIN, "by hand"), 100.0, Happened.ELSEWHERE),
        (TRIAL, policy(6, {"phase": "other"}, AT_DEADLINE), 100.0, Happened.ELSEWHERE),
        (KNOWN, policy(1, PLAIN), 200.0, Happened.RESTART),
        (KNOWN, policy(1, BARRIER), 200.0, Happened.LEARNED),  # it starts with the same policy
        (TRIAL, policy(1, PLAIN), 200.0, Happened.LEARNED),  # what was set for a time would have gone back
        (TRIAL, policy(1, BARRIER), 200.0, Happened.RESTART),
        (KNOWN, policy(9, PLAIN), 200.0, Happened.RESTART),  # versions that went on are no proof
        (KNOWN, policy(2, PLAIN), None, Happened.RESTART),  # versions only rise
    ],
)
def test_what_happened(known: Known | None, now: dict[str, Any], started_at: float | None, happened: Happened) -> None:
    assert judge(known, now, started_at) is happened
