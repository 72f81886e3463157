"""A change that is taken back leaves the deadline of what it leads back to."""

from __future__ import annotations

import pytest

from scheduler_api.policies.switching import still_to_run

PLAIN = {"phase": "continuous", "prefill_order": "physical"}


@pytest.mark.parametrize(
    ("requested", "reverts_at", "reverts_to", "changes", "left"),
    [
        ({"phase": "barrier"}, None, None, {"phase": "continuous"}, None),  # nothing was set for a time
        ({"phase": "barrier"}, 160.0, PLAIN, {"phase": "continuous"}, None),  # that was what was set for a time
        ({"phase": "barrier", "prefill_order": "fair"}, 160.0, PLAIN, {"phase": "continuous"}, 60.0),  # the order still is
        ({"phase": "barrier", "prefill_order": "fair"}, 100.5, PLAIN, {"phase": "continuous"}, 1.0),
    ],
)
def test_what_is_left(
    requested: dict[str, str],
    reverts_at: float | None,
    reverts_to: dict[str, str] | None,
    changes: dict[str, str],
    left: float | None,
) -> None:
    policy = {"requested": PLAIN | requested, "reverts_at": reverts_at, "reverts_to": reverts_to}
    assert still_to_run(policy, changes, 100.0) == left
