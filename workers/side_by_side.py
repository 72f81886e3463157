"""Runs beside each other: any two, and those of one scenario over time. `workers.selectors` offers both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from workers.analysis import sentences
from workers.analysis.runs import Setting, Side, compared, differing, reasons, trend_rows
from workers.measure_rows import all_measures
from workers.models import Run, RunState
from workers.scenarios import Scenario, ScenarioError, library

type Json = dict[str, Any]
type Results = Callable[[Run], Json]

MOST_RUNS = 40  # of a trend


def compare(first: Run, second: Run, results: Results) -> Json:
    """See `workers.selectors.compare`."""
    sides = [Side(run.pk, settings_of(run), all_measures(results(run))) for run in (first, second)]
    why = reasons(*sides)
    return {
        "first": summary_of(first),
        "second": summary_of(second),
        "comparable": not why,
        "reasons": why,
        "configuration": differing(*sides),
        "measures": compared(sides[0], sides[1], first.seed),
    }


def trend(run: Run, results: Results) -> Json:
    """See `workers.selectors.trend`."""
    version = version_of(run)
    same = Run.objects.select_related("server", "created_by").filter(
        scenario=run.scenario, policy_a=run.policy_a, policy_b=run.policy_b, state=RunState.FINISHED
    )
    same = same.filter(pk=run.pk) if run.server_id is None else same.filter(server_id=run.server_id)
    rows = [each for each in same.order_by("-id")[: 2 * MOST_RUNS] if version_of(each) == version]
    left_out = max(0, len(rows) - MOST_RUNS)
    shown = list(reversed(rows[:MOST_RUNS]))
    measured = [(_point(each, run), _measures(each.pk, each.created_at, results)) for each in shown]
    return {
        "scenario": run.scenario,
        "version": version,
        "arms": {"A": sentences.arm_words(run.policy_a, run.policy_b), "B": sentences.arm_words(run.policy_b, run.policy_a)},
        "runs": [said for said, _ in measured],
        "left_out": left_out,
        "measures": trend_rows([(said, rows) for said, rows in measured if rows]),
    }


@lru_cache(maxsize=400)
def _measures(pk: int, created_at: datetime, results: Results) -> Sequence[Json]:
    """Of a run that is over, so they do not change any more; its birth tells it from one whose number is used again."""
    return [row for row in all_measures(results(Run.objects.get(pk=pk))) if row["points"]]


def _point(run: Run, asked: Run) -> Json:
    build, scale = _server(run).get("build"), run.scale
    return {
        "run": run.pk,
        "at": run.started_at or run.created_at,
        "pairs": run.repetitions,
        "build": build,
        "scale": scale,
        "same_build": build == _server(asked).get("build"),
        "same_scale": max(scale, asked.scale) <= 1.05 * min(scale, asked.scale),
        "shown": run.pk == asked.pk,
    }


def summary_of(run: Run) -> Json:
    """Keys: run, scenario, version, server (its name), imported, state, at (aware datetime), pairs, arms {"A", "B"} in words."""
    return {
        "run": run.pk,
        "scenario": run.scenario,
        "version": version_of(run),
        "server": server_name(run),
        "imported": run.imported is not None,
        "state": run.state,
        "at": run.started_at or run.created_at,
        "pairs": run.repetitions,
        "arms": {"A": sentences.arm_words(run.policy_a, run.policy_b), "B": sentences.arm_words(run.policy_b, run.policy_a)},
    }


def server_name(run: Run) -> str:
    """Of an imported run, the one that it had where it was made."""
    if run.server_id is not None:
        return run.server.name
    return str(((run.imported or {}).get("server") or {}).get("name") or "unknown")


def version_of(run: Run) -> int | None:
    """Of its scenario: as the run noted it, else as the library has it."""
    noted = (run.conditions.get("scenario") or {}).get("version")
    if noted is not None or run.scenario_text:
        return noted
    try:
        found = library.find(run.scenario)
    except ScenarioError:
        return None
    return found.version if isinstance(found, Scenario) else None


def _server(run: Run) -> Json:
    found = run.conditions.get("server")
    return found if isinstance(found, dict) else {}


def settings_of(run: Run) -> list[Setting]:
    """What is known of how it ran; what is not known is not there."""
    conditions, server = run.conditions, _server(run)
    fitted = conditions.get("fitted") or {}
    rows: list[tuple[str, str, Any, str]] = [
        ("scenario", "Scenario", run.scenario, "the scenario"),
        ("version", "Scenario's version", version_of(run), "the scenario's version"),
        ("text", "Scenario's text", _digest(run.scenario_text), ""),
        ("scale", "Scale", float(run.scale), "the scale"),
        ("times", "Times", fitted.get("times"), ""),
        ("pairs", "Pairs", run.repetitions, ""),
        ("order", "Order", run.order, ""),
        ("floor", "Floor pairs", run.floor, ""),
        ("shards", "Shards", run.shards, ""),
        ("seed", "Seed", run.seed, ""),
        ("policy_a", "Arm A", _words(run.policy_a), ""),
        ("policy_b", "Arm B", _words(run.policy_b), ""),
        ("server", "Server", server_name(run), ""),
        ("model", "Model", _model(server), "the model"),
        ("speaks", "Requests", _speaks(conditions), "how requests were said"),
        ("backend", "Backend", server.get("backend"), "the backend"),
        ("build", "Build", server.get("build"), "the server's build"),
        ("kv_mode", "KV mode", conditions.get("kv_mode"), "the KV mode"),
        ("n_slots", "Slots", server.get("n_slots"), ""),
        ("n_ctx_slot", "Context of a slot", server.get("n_ctx_slot"), ""),
        ("n_batch", "n_batch", server.get("n_batch"), ""),
        ("n_ubatch", "n_ubatch", server.get("n_ubatch"), ""),
        ("n_threads", "Threads", server.get("n_threads"), ""),
        ("speed", "Prompt tokens a second alone", fitted.get("speed"), ""),
    ]
    return [Setting(key, label, _text(value), value, reason) for key, label, value, reason in rows if value not in (None, "")]


def _model(server: Json) -> Any:
    """What the server said, which an engine calls its name; a llama-server's is that of the registry and says nothing."""
    return server.get("model") or (server.get("name") if "backend" in server else None)


def _speaks(conditions: Json) -> str:
    """Of an OpenAI-compatible server: the same words, said in another way, are another load."""
    found = conditions.get("speaks")
    return f"{found['path']}, {'token ids' if found['prompt'] == 'ids' else 'text'}" if found else ""


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _words(policy: Json) -> str:
    return ", ".join(f"{field}={json.dumps(value)}" for field, value in sorted(policy.items())) or "the policy found"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else ""
