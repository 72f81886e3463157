"""What an operator is warned of, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.scheduler.policy import Policy
from scheduler_api.policies.cautions import cautions

ENDLESS = {"id": 2, "state": "generating", "client": "agent", "n_predict": -1}


def found(changes: dict[str, Any], state: dict[str, Any] | None = None, ttl_s: float | None = 60, **policy: Any) -> list[Any]:
    return cautions(changes, {"requested": Policy().as_dict(), "reverts_at": None} | policy, state, ttl_s)


def test_a_barrier_without_caps_while_something_generates_without_end_is_severe() -> None:
    first, *_ = found({"phase": "barrier"}, {"slots": [ENDLESS]})
    assert first.severe
    assert first.text.startswith("Slot 2 (agent) generates without an end")


@pytest.mark.parametrize("slot", [ENDLESS | {"n_predict": 200}, ENDLESS | {"state": "idle"}])
def test_an_end_or_an_idle_slot_is_no_reason(slot: dict[str, Any]) -> None:
    assert not any(each.severe for each in found({"phase": "barrier"}, {"slots": [slot]}))


def test_caps_leave_nothing_to_say() -> None:
    caps = {"barrier_max_generation_tokens": 256, "barrier_max_hold_ms": 8000}
    assert found({"phase": "barrier"} | caps, {"slots": [ENDLESS]}) == []


def test_taking_the_cap_off_under_a_barrier_is_as_severe() -> None:
    requested = Policy().as_dict() | {"phase": "barrier", "barrier_max_generation_tokens": 64}
    assert found({"barrier_max_generation_tokens": None}, {"slots": [ENDLESS]}, requested=requested)[0].severe


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"prefill_order": "rotating"}, {"info": {"kv_mode": "unified"}}, "rotating has no effect"),
        ({"prefill_order": "rotating", "rotation_start": "after_last"}, {}, "squeeze or starve"),
        ({"prefill_order": "shortest_first"}, {"info": {"n_slots": 4}}, "up to 11 batches"),
        ({"phase": "barrier", "decode_share": 0.5}, {}, "under a barrier it has no effect"),
        ({"decode_share": 0.95}, {}, "20 times as long"),
        ({"prefill_chunk": 64}, {"info": {"n_ubatch": 512}}, "below n_ubatch (512)"),
        ({"phase": "barrier", "barrier_join": "window", "barrier_join_window_ms": 60_000}, {}, "more than 10 s"),
    ],
)
def test_each_combination_has_its_warning(changes: dict[str, Any], state: dict[str, Any], words: str) -> None:
    assert words in " ".join(each.text for each in found(changes, state))


@pytest.mark.parametrize("changes", [{"prefill_order": "rotating"}, {"prefill_chunk": 512}, {"decode_share": 0.5}])
def test_what_is_harmless_is_not_warned_of(changes: dict[str, Any]) -> None:
    assert found(changes, {"info": {"kv_mode": "split", "n_ubatch": 512}}) == []


def test_a_change_that_stays_ends_the_countdown_that_runs() -> None:
    assert "countdown ends" in found({"prefill_chunk": 512}, ttl_s=None, reverts_at=5.0)[0].text
    assert found({"prefill_chunk": 512}, ttl_s=60, reverts_at=5.0) == []
