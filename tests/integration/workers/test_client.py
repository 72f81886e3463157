"""The command `slotboard` against the console over a socket, before a real engine: what it does stands in the trail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from dashboard.people import tokens
from dashboard.people.models import Scope
from scheduler_api import live, policies
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from scheduler_api.policies import drifting
from slotboard_client import Client, cli
from tests.support.engine import EngineProcess
from tests.support.sample_states import FakeServer
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


def test_what_stands_beside_a_policy(server: Server, command: Command, valkey: ValkeyProcess, engine: EngineProcess) -> None:
    words = ("phase=barrier", "--ttl", "600", "--reason", "streams stutter", "--guard", "oldest_wait:60:10")
    assert command("policy", "bench", "set", *words)[0] == 0
    assert "oldest_wait over 60 for 10 s" in command("guards", "bench", "--state", "watching")[1]
    [guard] = json.loads(command("guards", "bench", "--json")[1])
    assert command("guards", "bench", "off", str(guard["id"]))[0] == 0
    assert command("guards", "bench", "off", str(guard["id"]))[0] == 1  # it watches no more
    assert command("guards", "bench", "--state", "watching")[1] == "No guard rails.\n"

    for version, asked in ((None, {}), (policies.read_policy(server)["version"], {"phase": "continuous"})):
        if version is not None:  # somebody goes to the engine itself
            changed = engine.client.patch("/scheduler/policy", json={"expected_version": version, "set": asked})
            assert changed.status_code == 200
        drifting.look(server, policies.read_policy(server), 1.0)
    code, told = command("drift", "bench", "--state", "open")
    assert (code, "phase: barrier was set, continuous is there" in told) == (0, True), told
    [drift] = json.loads(command("drift", "bench", "--json")[1])
    assert command("drift", "bench", "reapply", str(drift["id"]), scope="read")[0] == 1
    assert command("drift", "bench", "reapply", str(drift["id"]))[0] == 0
    assert policies.read_policy(server)["requested"]["phase"] == "barrier"

    with redis.Redis.from_url(valkey.url) as store:
        store.set(live.state_key(server.pk), live.encode(FakeServer(server.pk, "bench").state()), ex=60)
    times = ("--days", "mon,fri", "--begins", "22:00", "--ends", "06:00", "--zone", "UTC")
    code, told = command("windows", "bench", "add", "--name", "nights", "--inside", "phase=barrier", *times)
    assert (code, told.startswith("Window ")) == (0, True), told
    [window] = json.loads(command("windows", "bench", "--json")[1])
    assert (window["days"], window["inside"], window["by"]) == ([0, 4], {"phase": "barrier"}, "mira")
    assert " is off: " in command("windows", "bench", "off", str(window["id"]))[1]
    assert command("windows", "bench", "remove", str(window["id"]))[0] == 0
    assert command("windows", "bench")[1] == "No windows.\n"


def test_the_script_from_another_folder(server: Server, live_server: LiveServer, secrets: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(secrets["read"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLOTBOARD_")}
    words = ["servers", "--url", live_server.url, "--token-file", "token", "--json"]
    done = subprocess.run(
        [ROOT / "tools" / "slotboard", *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["name"] for each in json.loads(done.stdout)] == ["bench"]
