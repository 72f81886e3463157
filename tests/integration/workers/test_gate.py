"""The command as a gate for scripts: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import signal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from scheduler_api.models import Server
from workers import experiments, gating, steps
from workers.exporting.importing import import_run
from workers.models import Run, RunState
from workers.scenarios import library

SMALL = ("run", "warm-behind-cold", "--server", "bench", "--pairs", "1", "--floor", "1", "--scale", "0.008", "--arms", "A,B")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is conducted where it is started, without a broker between."""
    monkeypatch.setattr(experiments, "send", lambda run: steps.conduct(run.pk, "test"))


def gate(*more: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("experiment", *SMALL, *more, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.usefixtures("at_once")
def test_a_gate_that_is_met_and_one_that_is_not(server: Server, tmp_path: Path) -> None:
    code, told = gate("--json", "--assert", "short.wall.p50 ratio>=0.01", "--assert", "makespan b<=60s")
    found = json.loads(told)
    assert (code, found["code"], found["failure"]) == (0, 0, "")
    assert [answer["met"] for answer in found["assertions"]] == [True, True]
    run = Run.objects.get(pk=found["run"])
    assert (run.state, run.floor, run.progress_done) == (RunState.FINISHED, 1, 5)
    assert (run.policy_a, run.policy_b) == ({"prefill_order": "physical"}, {"prefill_order": "rotating"})
    assert [(block.floor, block.pair, block.arm) for block in run.blocks.order_by("index")] == [
        (0, 0, ""),
        (1, 0, "A"),
        (1, 0, "A"),
        (0, 1, "A"),
        (0, 1, "B"),
    ]
    assert found["result"]["floor_pairs"] == 1
    assert found["result"]["noise"]["run"] == run.pk
    assert {measure["floor"] is not None for measure in found["result"]["measures"]} == {True}

    file = tmp_path / "run.json"
    code, told = gate("--assert", "short.wall.p50 ratio>=1000", "--assert", "makespan b<=60s", "--export", str(file))
    assert code == 1
    assert import_run(file.read_bytes(), None).imported is not None
    assert "not met: short.wall.p50 ratio>=1000: " in told
    assert "\nmet: makespan b<=60s: " in told


def test_wrong_words_end_with_two_before_anything_is_sent(server: Server) -> None:
    for words, told in (
        (("--assert", "victim.ttft.p50 ratio>=2"), "streams are short, cold"),
        (("--assert", "short.wall.p50 better"), "is no assertion"),
        (("--arms", "A"), "needs two arms"),
        (("--server", "nobody"), "No server is registered"),
        (("--floor", "99"), "between 0 and 20, not 99"),
        (("--export", "run.pdf"), "must end with .json, .csv, .html"),
        (("--export", "nowhere/run.csv"), "there is no folder nowhere"),
    ):
        with pytest.raises(CommandError, match=told) as caught:
            gate(*words)
        assert caught.value.returncode == 2
    assert not Run.objects.exists()


@pytest.mark.usefixtures("at_once")
def test_a_load_is_judged_by_stream_client_and_fairness(server: Server) -> None:
    """Small, with a floor pair, a request of each stream alone, and all three lists of measures."""
    out = StringIO()
    words = ("run", "victim-and-attacker", "--server", "bench", "--pairs", "1", "--floor", "1", "--scale", "0.005", "--json")
    demands = ("victim.ttft.mean diff<=60s", "client:attacker.e2e.p50 b<=60s", "victim.slowdown b>=0.01", "jain_streams a>0")
    call_command("experiment", *words, *(f"--assert={each}" for each in demands), stdout=out, stderr=StringIO())
    found = json.loads(out.getvalue())
    assert [answer["met"] for answer in found["assertions"]] == [True] * 4
    assert found["result"]["floor_pairs"] == 1
    assert set(found["result"]["fairness"]["alone"]) == {"attacker", "victim"}
    assert found["result"]["fairness"]["unknown"] == ""
    run = Run.objects.get(pk=found["run"])
    floor = list(run.blocks.filter(floor=1).order_by("index"))
    assert [block.arm for block in floor] == ["A", "A"]
    planned = [sorted(block.samples.values_list("role", "place", "n_prompt")) for block in floor]
    assert planned[0] == planned[1]


def test_a_run_that_takes_too_long_is_stopped_and_ends_with_two(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "send", lambda run: None)
    with pytest.raises(CommandError, match="has no result to judge: it took longer than allowed") as caught:
        gate("--timeout", "0.01")
    assert caught.value.returncode == 2
    assert Run.objects.get().state == RunState.STOPPED


def test_order_and_floor_come_from_the_scenario_unless_the_start_says_otherwise(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(experiments, "send", lambda run: None)
    file = tmp_path / "mine.yaml"
    text = library.text_of("victim-and-attacker").replace("name: victim-and-attacker", "name: mine", 1)
    file.write_text(text.replace("\nstreams:", "\nblocks: {order: random, floor: 3}\nstreams:", 1))
    for words, order, floor in (
        ((), "random", 3),
        (("--order", "abba", "--floor", "0"), "abba", 0),
        (("--arms", "A,A"), "random", 3),
    ):
        call_command("experiment", str(file), "--server", "bench", "--pairs", "5", "--scale", "0.01", *words, stdout=StringIO())
        run = Run.objects.latest("pk")
        assert (run.order, run.floor, run.progress_total) == (order, floor, 2 * (5 + floor) + 1)
        experiments.request_stop(run, None)
    call_command("experiment", "late-arrival", "--server", "bench", "--pairs", "5", "--scale", "0.01", stdout=StringIO())
    usual = Run.objects.latest("pk")
    assert (usual.order, usual.floor) == ("abba", 2)
    file.write_text(text.replace("\nstreams:", "\nblocks: {order: shuffled}\nstreams:", 1))
    with pytest.raises(CommandError, match=r"mine.yaml, line \d+: blocks.order must be 'abba' or 'random', not 'shuffled'"):
        call_command("experiment", str(file), "--server", "bench")


def test_a_signal_stops_the_run_and_ends_with_two(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = signal.getsignal(signal.SIGTERM)
    started = gating.Waiting.to_the_end

    def interrupted(waiting: gating.Waiting) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return started(waiting)

    monkeypatch.setattr(experiments, "send", lambda run: None)
    monkeypatch.setattr(gating.Waiting, "to_the_end", interrupted)
    with pytest.raises(CommandError, match="has no result to judge: it was interrupted") as caught:
        gate()
    assert caught.value.returncode == 2
    assert Run.objects.get().state == RunState.STOPPED
    assert signal.getsignal(signal.SIGTERM) is handlers
