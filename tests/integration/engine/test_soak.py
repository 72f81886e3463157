"""A short soak: requests of every kind, many of them left by their clients, and nothing stays behind.

`make bench NAME=soak` is the long one.
"""

from __future__ import annotations

import pytest

from benchmarks.soak import soak


@pytest.mark.parametrize(
    ("backend", "unified", "requests"),
    [("simulated", False, 300), ("simulated", True, 300), ("llama", False, 60), ("llama", True, 60)],
)
@pytest.mark.model
def test_nothing_stays_behind(backend: str, unified: bool, requests: int) -> None:
    figures = soak(backend, requests, unified=unified, seed=7)
    assert figures["other"] == 0
    assert figures["busy_slots"] == figures["queued"] == 0
    assert figures["answered"] > 0 < figures["left"]  # type: ignore[operator]
    assert figures["exit_code"] == 0
    assert figures["drain_s"] < 15  # type: ignore[operator]  # a task that nobody knows of would keep it for 30 seconds
