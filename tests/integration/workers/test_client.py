"""The command `slotboard` against the console over a socket, before a real engine: what it does stands in the trail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from dashboard.people import tokens
from dashboard.people.models import Scope
from scheduler_api import policies
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from slotboard_client import Client, cli
from tests.support.valkey import ValkeyProcess
from workers import experiments, steps
from workers.models import Run

ROOT = Path(__file__).resolve().parents[3]

type Command = Callable[..., tuple[int, str]]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is conducted where it is started, without a broker between."""
    monkeypatch.setattr(experiments, "send", lambda run: steps.conduct(run.pk, "test"))


@pytest.fixture
def secrets(operator: User) -> dict[str, str]:
    return {scope.value: tokens.make(operator, f"ci-{scope.value}", scope)[1] for scope in (Scope.READ, Scope.OPERATE)}


@pytest.fixture
def command(
    live_server: LiveServer, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Exit code and standard output of `slotboard`, with a token that may operate unless another scope is named."""
    monkeypatch.setenv("SLOTBOARD_URL", live_server.url)

    def run(*words: str, scope: str = "operate") -> tuple[int, str]:
        monkeypatch.setenv("SLOTBOARD_TOKEN", secrets[scope])
        return cli.main(words), capsys.readouterr().out

    return run


@pytest.mark.usefixtures("at_once")
def test_a_day_of_a_script(
    server: Server, command: Command, valkey: ValkeyProcess, secrets: dict[str, str], live_server: LiveServer
) -> None:
    code, told = command("servers")
    assert (code, "bench" in told, "not observed" in told) == (0, True, True)

    words = ("prefill_order=rotating", "--ttl", "600", "--reason", "chat waits")
    assert command("policy", "bench", "set", *words, scope="read")[0] == 1
    code, told = command("policy", "bench", "set", *words)
    assert (code, told.startswith("prefill_order: physical to rotating; version")) == (0, True), told
    assert policies.read_policy(server)["reverts_at"] is not None
    assert "goes back" in command("policy", "bench")[1]
    assert command("policy", "bench", "set", "phase=sideways", "--reason", "x")[0] == 1
    assert command("policy", "bench", "set", "phase=barrier", "--reason", "x", "--expected-version", "1")[0] == 1
    assert command("policy", "bench", "revert")[0] == 0
    assert policies.read_policy(server)["requested"]["prefill_order"] == "physical"

    size = ("--pairs", "1", "--floor", "0", "--scale", "0.008")
    code, told = command(
        "run", "start", "--server", "bench", "--scenario", "warm-behind-cold", "--arms", "A,B", *size, "--wait", "--json"
    )
    run = Run.objects.get()
    assert (code, json.loads(told)["state"], json.loads(told)["result"]["complete_pairs"]) == (0, "finished", 1)
    assert json.loads(told)["by"] == "mira"
    code, told = command("samples", str(run.pk), "--csv")
    assert (code, len(told.splitlines())) == (0, run.samples.count() + 1)
    assert command("samples", str(run.pk))[1].count("short") == run.samples.filter(role="short").count()

    rows = json.loads(command("audit", "--what", "policy", "--json", scope="read")[1])
    assert [(row["actor_name"], row["through"], row["outcome"]) for row in rows[-4:]] == [
        ("mira", "token ci-operate", "done"),
        ("mira", "token ci-operate", "refused"),
        ("mira", "token ci-operate", "refused"),
        ("mira", "token ci-operate", "done"),
    ]
    with Client(live_server.url, secrets["read"]) as console:
        assert [each.seq for each in console.audit()] == list(
            AuditEntry.objects.filter(server_id=server.pk).values_list("seq", flat=True)
        )


def test_the_script_from_another_folder(server: Server, live_server: LiveServer, secrets: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(secrets["read"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLOTBOARD_")}
    words = ["servers", "--url", live_server.url, "--token-file", "token", "--json"]
    done = subprocess.run(
        [ROOT / "tools" / "slotboard", *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["name"] for each in json.loads(done.stdout)] == ["bench"]
