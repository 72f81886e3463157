"""What must be prompt does not wait behind runs: its tasks have a queue, and a worker of the Procfile for themselves."""

from __future__ import annotations

import shlex
from pathlib import Path

from honcho.environ import parse_procfile

import workers.tasks
import workers.windows  # noqa: F401  # importing them registers their tasks
from workers.app import UPKEEP, app

ROOT = Path(__file__).resolve().parents[3]


def queues_of(command: str) -> list[str]:
    words = shlex.split(command)
    return words[words.index("-Q") + 1].split(",")


def test_each_task_has_the_queue_that_its_haste_wants() -> None:
    ours = {name for name in app.tasks if name.startswith("workers.")}
    prompt = {name for name in ours if app.conf.task_routes.get(name, {}).get("queue") == UPKEEP}
    assert prompt == {f"workers.{name}" for name in ("reap", "windows", "alerts", "deliver", "drop_old")}
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= prompt, "what beat asks for is never behind a run"


def test_the_procfile_serves_both_queues_apart() -> None:
    commands = parse_procfile((ROOT / "Procfile").read_text()).processes
    assert queues_of(commands["worker"]) == ["celery"]
    assert queues_of(commands["upkeep"]) == [UPKEEP]
    assert [name for name, command in commands.items() if "--beat" in command] == ["upkeep"], "one beat, or tasks come twice"
    assert {queue.name for queue in app.conf.task_queues} == {"celery", UPKEEP}
