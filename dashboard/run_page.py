"""The words on the page of a run that are not figures: its state, how it ended, its blocks so far, what it ran under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard import arms
from dashboard.charts import words
from dashboard.sample_table import Sample
from workers.models import Block, Run, RunState

RESTARTED = "the server restarted within it, so it does not count"
SILENT_S = 5.0  # without a word from the worker the page says so


@dataclass(frozen=True, slots=True)
class State:
    mark: str
    tone: str
    word: str


STATES = {
    RunState.WAITING: State("queued", "q", "Waiting"),
    RunState.QUEUED: State("queued", "q", "Queued"),
    RunState.RUNNING: State("gen", "", "Running"),
    RunState.STOPPING: State("waiting", "", "Stopping"),
    RunState.FINISHED: State("ok", "", "Finished"),
    RunState.STOPPED: State("held", "q", "Stopped"),
    RunState.FAILED: State("failed", "is-bad", "Failed"),
    RunState.LOST: State("silent", "is-warn", "Lost"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence with its mark; `tone` is the box's class, `colour` the mark's."""

    text: str
    mark: str = "info"
    tone: str = ""
    colour: str = ""


def state_of(run: Run) -> State:
    if run.stop_requested and run.state == RunState.RUNNING:
        return STATES[RunState.STOPPING]
    return STATES[RunState(run.state)]


def endings(run: Run, pairs: int) -> list[Line]:
    """Why a run is over without being finished, what is known, and what became of the policy."""
    if run.active or (run.state == RunState.FINISHED and run.policy_restored is not False):
        return []
    known = f"{pairs} of {run.repetitions} pairs are complete" if pairs else "no pair is complete, so there is no result"
    reason = run.error or run.stop_reason
    if reason and not reason.endswith("."):
        reason += "."
    reason = reason[:1].upper() + reason[1:]
    policy = restored(run)
    put_back = policy.text if run.policy_restored is not False else ""
    lines = []
    if run.state == RunState.STOPPED:
        lines.append(Line(f"Stopped before its end; {known}. {reason} {put_back}".strip(), "held"))
    elif run.state == RunState.FAILED:
        lines.append(Line(f"Failed; {known}. {reason} {put_back}".strip(), "failed", "error", "is-bad"))
    elif run.state == RunState.LOST:
        lines.append(Line(f"The worker stopped reporting; {known}. {reason} {put_back}".strip(), "silent", "warning", "is-warn"))
    return lines if put_back else [*lines, policy]


def restored(run: Run) -> Line:
    if run.policy_restored:
        return Line("The policy found before the run was put back.", "ok")
    if run.policy_restored is None:
        unchanged = run.policy_before is None or run.policy_version is None
        return Line(
            "The run did not change the policy." if unchanged else "Putting the policy back is not confirmed yet.", "info"
        )
    told = next((text for text in reversed(run.warnings or []) if "policy" in text), "")
    text = told or "The policy found before the run was not put back."
    return Line(f"{text} Look at the server's policies before anything else runs on it.", "failed", "error", "is-bad")


def facts(run: Run, now: datetime, requests: str = "") -> dict[str, str]:
    done = run.finished_at or now
    took = (done - run.started_at).total_seconds() if run.started_at else None
    left = None
    stopping = run.stop_requested or run.state == RunState.STOPPING  # the blocks that are left are not run
    if run.active and not stopping and took and run.progress_done and run.progress_total > run.progress_done:
        left = took / run.progress_done * (run.progress_total - run.progress_done)
    return {
        "scenario": run.scenario.replace("-", " "),
        "full_a": arms.full(run.policy_a),
        "full_b": arms.full(run.policy_b),
        "blocks": _blocks(run),
        "scale": str(round(run.scale, 3)),
        "requests": requests,
        "took": words.span(took) if took is not None else "",
        "left": words.span(left) if left is not None else "",
    }


def _blocks(run: Run) -> str:
    """ "4 of the floor, then 16 in ABBA order"."""
    ways = {"abba": "in ABBA order", "random": "in drawn order"}
    told = (
        f"{2 * run.repetitions} {ways.get(run.order, run.order)}" if run.repetitions > 1 or run.order != "abba" else "2, A then B"
    )
    return f"{2 * run.floor} of the floor, then {told}" if run.floor else told


def progress_words(run: Run) -> str:
    if run.state == RunState.QUEUED:
        return run.progress_text or "Waiting for a worker to take it."
    return run.progress_text or "Under way."


def slow_words(run: Run, now: datetime) -> str:
    """What is awaited when nothing has been heard for a while; "" when all is well."""
    if run.state == RunState.QUEUED:
        waited = (now - (run.enqueued_at or run.created_at)).total_seconds()
        if waited > SILENT_S:
            told = words.span(waited)
            return f"No worker has taken it for {told}. One that is busy with another run takes it next; else start a worker."
        return ""
    age = heartbeat_age(run, now)
    if age is not None and age > SILENT_S:
        told = words.span(age)
        return f"The worker last reported {told} ago. After 15 s of silence the run counts as lost and the policy is put back."
    return ""


def heartbeat_age(run: Run, now: datetime) -> float | None:
    return (now - run.heartbeat_at).total_seconds() if run.heartbeat_at else None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A block so far, from its samples."""

    name: str
    arm: str
    arm_name: str
    short: str
    wait: str
    cold: str
    note: str


def log_of(samples: Iterable[Sample], labels: Mapping[str, str], most: int = 12) -> list[LogLine]:
    """The newest blocks first."""
    blocks: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        blocks.setdefault(sample["block"], {})[sample["role"]] = sample
    return [_log_line(number, by_role, labels) for number, by_role in sorted(blocks.items(), reverse=True)[:most]]


def _log_line(number: int, by_role: Mapping[str, Sample], labels: Mapping[str, str]) -> LogLine:
    some = next(iter(by_role.values()))
    arm = str(some["arm"] or "")
    errors = [f"{role}: {sample['error']}" for role, sample in by_role.items() if sample["error"]]

    def told(role: str, name: str) -> str:
        value = by_role.get(role, {}).get(name)
        return words.seconds(value) if value is not None else ""

    return LogLine(
        name=f"{number}, pair {some['pair']}" if some["pair"] else f"{number}, calibration",
        arm=arm,
        arm_name=labels.get(arm, ""),
        short=told("short", "wall_s"),
        wait=told("short", "wait_s"),
        cold=told("cold", "wall_s"),
        note="; ".join(errors) or ("" if arm else "how long each takes alone"),
    )


def checks(run: Run, counts: Mapping[str, int], blocks: Sequence[Block]) -> list[Line]:
    """What was looked at and found in order, or not; `counts` as `workers.sample_values.sample_counts` gives them."""
    lines = []
    failed, total = counts["failed"], words.whole(counts["total"])
    if counts["total"]:
        lost = "they have an outcome and no times" if run.scenario_text else "their pairs count nowhere"
        text = f"{words.whole(failed)} of {total} requests failed; {lost}." if failed else f"None of {total} requests failed."
        lines.append(Line(text, "warn" if failed else "ok", colour="is-warn" if failed else ""))
    read_back = sum(1 for block in blocks if block.arm and block.policy_version is not None)
    if read_back:
        lines.append(Line(f"The policy was read back from the server before each of {read_back} blocks.", "ok"))
    if run.state == RunState.FINISHED and run.policy_restored:
        lines.append(restored(run))
    return lines


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block as the conditions list it."""

    number: int
    pair: str
    arm: str
    version: str
    started: datetime
    took: str
    note: str


def block_rows(blocks: Sequence[Block]) -> list[BlockRow]:
    return [
        BlockRow(
            number=block.index,
            pair=f"pair {block.pair}" if block.pair else f"floor {block.floor}" if block.floor else "calibration",
            arm=block.arm,
            version="not told" if block.policy_version is None else str(block.policy_version),
            started=block.started_at,
            took=words.span((block.finished_at - block.started_at).total_seconds()) if block.finished_at else "not finished",
            note="; ".join([RESTARTED, *block.warnings] if block.interrupted else block.warnings),
        )
        for block in blocks
    ]
