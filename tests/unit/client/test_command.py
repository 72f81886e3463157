"""The command `slotboard`: what it asks for, what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slotboard_client import Refused, Unreachable, client
from slotboard_client.printing import facts, moment, plain, table
from tests.unit.client.fake_console import POLICY, RUN, TOKEN, FakeConsole, run

type Out = pytest.CaptureFixture[str]


class TestPolicies:
    def test_the_policy_as_a_table(self, fake: FakeConsole, capsys: Out) -> None:
        assert run("policy", "local") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "version  41"
        assert "prefill_chunk  off        off       -" in lines

    def test_set_sends_the_version_that_was_seen_and_values_by_their_kind(self, fake: FakeConsole, capsys: Out) -> None:
        words = ["prefill_order=rotating", "speculative=off", "prefill_chunk=off", "decode_share=0.5"]
        code = run("policy", "local", "set", *words, "--ttl", "600", "--reason", "chat waits", "--guard", "ttft_p95:30:60:20")
        assert code == 0
        [body] = fake.bodies("PATCH")
        assert body["set"] == {"prefill_order": "rotating", "speculative": "off", "prefill_chunk": None, "decode_share": 0.5}
        assert (body["expected_version"], body["ttl_s"], body["reason"]) == (41, 600, "chat waits")
        assert body["guards"] == [{"metric": "ttft_p95", "over": 30, "for_s": 60, "samples": 20}]
        out = capsys.readouterr().out
        assert "prefill_order: physical to rotating; version 42, from iteration 7 on." in out
        assert "prefill_order rotating was asked for; physical is in force." in out

    def test_a_dry_run_shows_what_would_change_and_what_to_know(self, fake: FakeConsole, capsys: Out) -> None:
        fake.answers["POST servers/3/policy/review"] = {
            "requested": {"phase": "barrier", "prefill_order": "physical"},
            "effective": {"phase": "barrier", "prefill_order": "physical"},
            "reasons": {},
            "cautions": [{"text": "Prompts may wait.", "severe": True}],
        }
        assert run("policy", "local", "set", "phase=barrier", "--dry-run") == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["phase  barrier    barrier   -", "Severe: Prompts may wait."]
        assert not fake.bodies("PATCH")

    def test_revert(self, fake: FakeConsole, capsys: Out) -> None:
        assert run("policy", "local", "revert") == 0
        assert fake.bodies("POST") == [{"change": None}]

    @pytest.mark.parametrize("words", [["phase"], ["=x"], ["phase=barrier", "--guard", "x:1"], ["phase=barrier"]])
    def test_what_is_no_field_guard_or_reason_is_wrong_use(self, fake: FakeConsole, capsys: Out, words: list[str]) -> None:
        assert run("policy", "local", "set", *words, *([] if words == ["phase=barrier"] else ["--reason", "x"])) == 2
        assert not fake.bodies("PATCH")
        assert capsys.readouterr().err.startswith("slotboard: ")

    def test_a_conflict_says_what_is_in_force(self, fake: FakeConsole, capsys: Out) -> None:
        told = {
            "type": "urn:slotboard:problem:version-conflict",
            "detail": "Changed meanwhile.",
            "current": POLICY | {"version": 44},
        }
        fake.answers["PATCH servers/3/policy"] = Refused(409, told)
        assert run("policy", "local", "set", "phase=barrier", "--reason", "x") == 1
        assert "In force is version 44: prefill_order=physical." in capsys.readouterr().err

    def test_what_is_to_be_confirmed_says_how(self, fake: FakeConsole, capsys: Out) -> None:
        fake.answers["PATCH servers/3/policy"] = Refused(
            409, {"type": "urn:slotboard:problem:confirm", "detail": "D.", "cautions": ["C."]}
        )
        assert run("policy", "local", "set", "phase=barrier", "--reason", "x") == 1
        assert capsys.readouterr().err.splitlines() == [
            "slotboard: D.",
            "slotboard: Severe: C.",
            "slotboard: Add --understood to switch all the same.",
        ]


class TestRuns:
    def test_start_and_wait_shows_what_it_found(self, fake: FakeConsole, capsys: Out) -> None:
        words = (
            "--server",
            "local",
            "--scenario",
            "agents",
            "--arms",
            "physical,rotating",
            "--wait",
            "--scale",
            "auto",
            "--queue",
        )
        assert run("run", "start", *words) == 0
        [body] = fake.bodies("POST")
        assert body == {
            "server": 3, "scenario": "agents", "arms": "physical,rotating", "wait": True, "pairs": 8, "scale": "auto",
        }  # fmt: skip
        out = capsys.readouterr().out
        assert "B was faster." in out
        assert "TTFT     2.000 s  1.000 s  0.500  0.400 to 0.600  faster" in out
        assert "Warning: Few pairs." in out

    def test_a_file_goes_as_text(self, fake: FakeConsole, tmp_path: Path, capsys: Out) -> None:
        file = tmp_path / "mine.yaml"
        file.write_text("name: mine")
        assert run("run", "start", "--server", "local", "--scenario", str(file)) == 0
        assert (fake.bodies("POST")[0]["scenario"], fake.bodies("POST")[0]["text"]) == ("", "name: mine")
        assert run("run", "start", "--server", "local", "--scenario", str(tmp_path / "none.yaml")) == 2

    def test_one_that_did_not_finish_is_refused(self, fake: FakeConsole, capsys: Out) -> None:
        fake.answers["GET runs/7"] = RUN | {"state": "failed", "error": "The server went away."}
        assert run("run", "wait", "7") == 1
        assert "The server went away." in capsys.readouterr().out
        assert run("run", "show", "7") == 0

    def test_stop_as_json(self, fake: FakeConsole, capsys: Out) -> None:
        assert run("--json", "run", "stop", "7") == 0
        assert json.loads(capsys.readouterr().out)["state"] == "stopped"


class TestLists:
    def test_filters_and_limit(self, fake: FakeConsole, capsys: Out) -> None:
        row = {
            "actor_name": "mira",
            "through": "session",
            "action": "a.b",
            "subject": "s\x1b[31m",
            "server_name": "",
            "before": None,
        }
        row |= {"after": None, "why": "", "outcome": "done", "at": "2026-05-01T09:00:00Z"}
        fake.lists["audit"] = [row | {"seq": seq} for seq in range(5, 0, -1)]
        assert run("audit", "--who", "mira", "--server", "local", "--from", "2026-05-01", "--limit", "2") == 0
        assert fake.sent[-1] == ("LIST", "audit", {"who": "mira", "server": 3, "from_": "2026-05-01"})
        out = capsys.readouterr().out
        assert len(out.splitlines()) == 3
        assert "\x1b" not in out

    def test_nothing_is_said(self, fake: FakeConsole, capsys: Out) -> None:
        fake.lists["alerts"] = []
        assert run("alerts") == 0
        assert capsys.readouterr().out == "No alerts.\n"

    def test_ack(self, fake: FakeConsole, capsys: Out) -> None:
        alert = {
            "id": 9,
            "kind": "down",
            "severity": "critical",
            "server": 3,
            "server_name": "local",
            "text": "t",
            "opened_at": "",
        }
        fake.answers["POST alerts/9/acknowledge"] = alert | {"closed_at": None, "acknowledged_by": "mira", "silenced_until": None}
        assert run("alerts", "ack", "9") == 0
        assert capsys.readouterr().out == "Alert 9 is acknowledged by mira.\n"


class TestCodes:
    def test_unreachable(self, fake: FakeConsole, capsys: Out) -> None:
        fake.answers["GET runs/7"] = Unreachable("No answer.")
        assert run("run", "show", "7") == 3
        assert capsys.readouterr().err == "slotboard: No answer.\n"

    def test_without_an_address_or_a_token(self, monkeypatch: pytest.MonkeyPatch, capsys: Out, tmp_path: Path) -> None:
        for name in ("SLOTBOARD_URL", "SLOTBOARD_TOKEN", "SLOTBOARD_TOKEN_FILE"):
            monkeypatch.delenv(name, raising=False)
        assert run("servers") == 2
        assert run("servers", "--url", "http://x") == 2
        assert "--token-file" in capsys.readouterr().err
        assert run("servers", "--url", "http://x", "--token-file", str(tmp_path / "none")) == 2
        (tmp_path / "token").write_text("two lines\nof it\n")
        assert run("servers", "--url", "http://x", "--token-file", str(tmp_path / "token")) == 2
        assert "two lines" not in capsys.readouterr().err

    def test_a_token_file_counts_before_the_variable(
        self, fake: FakeConsole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Out
    ) -> None:
        given: list[str] = []
        whole = client.Client.__init__

        def note(self: client.Client, url: str, token: str, **more: Any) -> None:
            given.append(token)
            whole(self, url, token, **more)

        monkeypatch.setattr(client.Client, "__init__", note)
        (tmp_path / "token").write_text("slotboard_of-the-file\n")
        assert run("servers", "--token-file", str(tmp_path / "token")) == run("servers") == 0
        assert given == ["slotboard_of-the-file", TOKEN]
        assert TOKEN not in "".join(capsys.readouterr())

    def test_wrong_words(self, capsys: Out) -> None:
        for words in ([], ["nothing"], ["run", "show", "x"], ["run", "start"]):
            with pytest.raises(SystemExit) as ended:
                run(*words)
            assert ended.value.code == 2


def test_printing() -> None:
    assert table(("A", "LONGER"), [(1, None), ("xyz", "b\nc")]) == "A    LONGER\n1    -\nxyz  b c"
    assert table(("A",), []) == ""
    assert facts([("a", 1), ("long", "x"), ("none", None)]) == "a     1\nlong  x"
    assert (plain("\x1b[2J\x07"), moment("no time"), moment(None)) == (" [2J ", "no time", "-")
