"""The words about drift, guard rails and windows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.fake_console import CHANGE, FakeConsole, run

DRIFT = {
    "id": 5, "found_at": "2026-05-01T09:00:00Z", "cause": "restart", "expected": {"phase": "barrier", "prefill_chunk": None},
    "found": {"phase": "continuous", "prefill_chunk": None}, "version": 1, "state": "open", "settled_by": "",
}  # fmt: skip
GUARD = {
    "id": 8, "change": 12, "version": 42, "state": "watching", "until": None, "text": "",
    "conditions": [{"metric": "oldest_wait", "over": 60.0, "for_s": 10.0, "samples": 1, "value": 3.5}],
}  # fmt: skip
WINDOW = {
    "id": 2, "name": "nights", "when": "Mon to Fri 22:00 to 06:00 the day after, UTC", "enabled": True, "by": "mira",
    "inside": {"phase": "barrier"}, "outside": None, "next": {"what": "begin", "due": "2026-05-01T22:00:00Z"},
    "last": [{"edge": "end", "outcome": "applied", "text": ""}],
}  # fmt: skip
PARTS = "servers/3/policy"

type Out = pytest.CaptureFixture[str]


@pytest.fixture
def standing(fake: FakeConsole) -> FakeConsole:
    fake.lists |= {f"{PARTS}/drifts": [DRIFT], f"{PARTS}/guards": [GUARD], f"{PARTS}/windows": [WINDOW]}
    fake.answers |= {
        f"POST {PARTS}/drifts/5/reapply": CHANGE, f"POST {PARTS}/drifts/5/leave": DRIFT | {"state": "left"},
        f"DELETE {PARTS}/guards/8": None, f"DELETE {PARTS}/windows/2": None, f"POST {PARTS}/windows": WINDOW,
        f"PATCH {PARTS}/windows/2": WINDOW | {"enabled": False, "next": None},
    }  # fmt: skip
    return fake


def test_drift_says_what_was_set_and_what_is_there(standing: FakeConsole, capsys: Out) -> None:
    assert run("drift", "local", "--state", "open") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("restart  open   -   phase: barrier was set, continuous is there")
    assert ("LIST", f"{PARTS}/drifts", {"state": "open"}) in standing.sent


def test_drift_is_settled_either_way(standing: FakeConsole, capsys: Out) -> None:
    assert run("drift", "local", "reapply", "5") == run("drift", "local", "leave", "5") == 0
    out = capsys.readouterr().out
    assert "prefill_order: physical to rotating; version 42" in out
    assert "The policy stays as it was found: phase: barrier was set, continuous is there." in out


def test_a_guard_rail_with_what_it_reads_and_its_end(standing: FakeConsole, capsys: Out) -> None:
    assert run("guards", "local") == run("guards", "local", "off", "8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "oldest_wait over 60 for 10 s, reads 3.5" in lines[1]
    assert lines[-1] == "Guard rail 8 is off; the policy stays."
    assert ("DELETE", f"{PARTS}/guards/8", None) in standing.sent


def test_windows_are_listed_switched_and_removed(standing: FakeConsole, capsys: Out) -> None:
    assert run("windows", "local") == run("windows", "local", "off", "2") == run("windows", "local", "remove", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "phase=barrier  as before  begin 2026-05-0" in lines[1]
    assert lines[1].endswith("end: applied")
    assert lines[-2:] == ["Window 2 nights is off: Mon to Fri 22:00 to 06:00 the day after, UTC.", "Window 2 is removed."]
    assert standing.bodies("PATCH") == [{"enabled": False}]


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (
            ["--inside", "phase=barrier+prefill_chunk=off", "--days", "mon,Friday", "--begins", "22:00", "--ends", "06:00"],
            {
                **{"inside": {"phase": "barrier", "prefill_chunk": None}, "outside": None},
                **{"days": [0, 4], "begins": "22:00", "ends": "06:00"},
            },
        ),
        (
            ["--inside", "a-preset", "--outside", "other", "--starts-at", "2026-05-01T03:00", "--ends-at", "2026-05-01T05:00"],
            {"inside": "a-preset", "outside": "other", "starts_at": "2026-05-01T03:00", "ends_at": "2026-05-01T05:00"},
        ),
    ],
)  # fmt: skip
def test_a_window_is_added(standing: FakeConsole, capsys: Out, words: list[str], sent: dict[str, Any]) -> None:
    assert run("windows", "local", "add", "--name", "nights", *words) == 0
    assert standing.bodies("POST") == [{"name": "nights", **sent}]
    assert capsys.readouterr().out.startswith("Window 2 nights is on: Mon to Fri")


@pytest.mark.parametrize("when", [[], ["--days", "mon", "--starts-at", "2026-05-01"], ["--days", "someday", "--begins", "1:00"]])
def test_a_window_without_its_time_or_with_two_is_wrong_use(standing: FakeConsole, capsys: Out, when: list[str]) -> None:
    assert run("windows", "local", "add", "--name", "x", "--inside", "a-preset", *when) == 2
    assert not standing.bodies("POST")
    assert capsys.readouterr().err.startswith("slotboard: ")
