"""The page of a run that is not over: its place in the queue, how far it is, and what its server does meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard import results, run_page, sample_table
from dashboard.charts import words
from dashboard.charts.live_load import SPAN_S, live_load
from scheduler_api import selectors as registry
from scheduler_api.history import detail
from workers import letting_go, queueing, selectors, target
from workers.models import Run, RunState

LOG_LINES = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the load that is being sent."""

    label: str
    value: str
    unit: str = ""
    tone: str = ""


def context(run: Run, now: datetime) -> dict[str, Any]:
    """What the live part shows. Reads the samples of warm-behind-cold alone: a load's are many, and its progress is counted."""
    found = found_of(run)
    age = run_page.heartbeat_age(run, now)
    live = selectors.progress(run)
    state = registry.live_state(run.server_id) if run.server_id else None
    figures = {} if run.scenario_text else _pair_figures(found["pairs"], run.repetitions)
    under_way = run.state in (RunState.RUNNING, RunState.STOPPING)
    if under_way and (drawn := _load_figure(run, state, now.timestamp())):
        figures["fig-live-load"] = drawn
    return {
        "facts": run_page.facts(run, now),
        "progress_words": run_page.progress_words(run),
        "slow_words": run_page.slow_words(run, now),
        "heartbeat_age": words.span(age) if age is not None else "",
        "queue": _queue_words(run, now),
        "load_figures": _figures(live),
        "load_age": words.span(max(0.0, now.timestamp() - live["at"])) if live and live.get("at") else "",
        "busy": _busy_words(run, state),
        "log": [] if run.scenario_text else _block_log(run, found["arms"]),
        "lines": list(reversed(selectors.log(run, LOG_LINES))),
        "figures": figures,
        "drawn": "fig-live-load" in figures,
        "under_way": under_way,
        "tells_requests": run.server is None or target.tells_slots(run.server),
    }


def found_of(run: Run) -> dict[str, Any]:
    """The results so far of warm-behind-cold; of a load the arms' names alone, since working its pairs out takes long."""
    if not run.scenario_text and run.state not in (RunState.WAITING, RunState.QUEUED):
        return selectors.results(run)
    label_a, label_b = selectors.arm_labels(run)
    return {"arms": {"A": label_a, "B": label_b}, "pairs": [], "complete_pairs": 0}


def _pair_figures(pairs: list[dict[str, Any]], planned: int) -> dict[str, Any]:
    return {name: figure for name, figure in results.pair_figures(pairs, planned).items() if name.endswith("-pairs")}


def _block_log(run: Run, labels: Mapping[str, str]) -> list[run_page.LogLine]:
    _, samples = sample_table.as_samples(selectors.sample_rows(run))
    return run_page.log_of(samples, labels)


def _figures(live: Mapping[str, Any] | None) -> list[Figure]:
    if not live:
        return []
    failed = int(live["failed"] or 0)
    return [
        Figure("Planned", words.whole(live["planned"])),
        Figure("Sent", words.whole(live["sent"])),
        Figure("Done", words.whole(live["done"])),
        Figure("Failed", words.whole(failed), tone="is-bad" if failed else ""),
        Figure("Rate", _rate(live["rate_per_s"]), "done a second"),
        Figure("TTFT so far, median", _seconds(live["ttft_p50_s"]), "s" if live["ttft_p50_s"] is not None else ""),
        Figure("TTFT so far, p95", _seconds(live["ttft_p95_s"]), "s" if live["ttft_p95_s"] is not None else ""),
    ]


def _rate(value: float | None) -> str:
    if value is None:
        return "none yet"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else words.whole(value)


def _seconds(value: float | None) -> str:
    return words.seconds(value) if value is not None else "none yet"


def _busy_words(run: Run, state: Mapping[str, Any] | None) -> str:
    """While a run stops: the slots that the server still holds on to."""
    if not (run.state == RunState.STOPPING or run.stop_requested) or state is None:
        return ""
    if run.progress_text.startswith(letting_go.CLOSED):
        return ""  # its worker has looked itself by now
    if not state.get("slots"):
        return letting_go.NO_SLOTS
    busy = [str(slot["id"]) for slot in state.get("slots") or [] if slot["state"] != "idle"]
    if not busy:
        return "All slots are free again; the policy is being put back."
    return f"{len(busy)} slot{'s' if len(busy) > 1 else ''} still busy ({', '.join(busy)}): a batch in flight runs to its end."


def _queue_words(run: Run, now: datetime) -> str:
    """What a run that has not begun waits for."""
    if run.state != RunState.WAITING:
        return ""
    if run.not_before is not None and run.not_before > now:
        return f"It starts in {words.span((run.not_before - now).total_seconds())}, when its server is free then."
    before = queueing.before(run)
    if not before:
        return "Its server is free: it is sent to a worker within a few seconds."
    first = before[0]
    more = f", number {len(before)} in line" if len(before) > 1 else ", next in line"
    return f"It waits for run {first.pk}, which has {first.server.name}{more}."


def _load_figure(run: Run, state: Mapping[str, Any] | None, now: float) -> dict[str, Any] | None:
    """None for a server whose requests nobody sees: no observer, or no report of tasks."""
    if state is None or run.server_id is None:
        return None
    found = detail.read(run.server_id, now - SPAN_S, now)
    n_slots = int((state.get("info") or {}).get("n_slots") or 0)
    if not n_slots and not found.tasks:
        return None
    blocks = selectors.blocks_between(run.server_id, now - SPAN_S, now).get(run.pk, [])
    return live_load(found.tasks, now, n_slots, [(block["from"], f"{block['arm']}") for block in blocks])
