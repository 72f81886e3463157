"""The engine's own metrics as Prometheus text, all under `slotboard_`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.meters import RECENT, Histogram, Meters, jain

PHASES = ("continuous", "pp", "tg", "idle")


def own_metrics(view: Mapping[str, Any], meters: Meters) -> str:
    """`view` is the GET /scheduler object. Seconds and tokens, as the names say."""
    return "".join((*_histograms(meters), *_service(meters), *_gauges(view, meters)))


def _histograms(meters: Meters) -> Iterable[str]:
    for name, text, histogram in (
        ("ttft_seconds", "From submission to the first token, in seconds.", meters.ttft),
        ("itl_seconds", "Between two tokens of a task.", meters.itl),
        ("queue_wait_seconds", "From submission until a task has a slot.", meters.queue_wait),
        ("first_visit_wait_seconds", "From having a slot to the first batch with tokens of the task.", meters.first_visit_wait),
        ("hold_seconds", "From the end of the prompt to the first token: held at the barrier.", meters.hold),
        ("slowdown", "Time from submission to the end over the time of it in which a task was served.", meters.slowdown),
        ("iteration_seconds", "Plan, run and settle of one batch.", meters.iteration_time),
    ):
        yield histogram_text(f"slotboard_{name}", text, histogram)


def histogram_text(name: str, text: str, histogram: Histogram) -> str:
    counts, total = histogram.read()
    lines, below = [f"# HELP {name} {text}", f"# TYPE {name} histogram"], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
    lines += [f"{name}_sum {total:.10g}", f"{name}_count {below}"]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    """`samples`: label text in braces, or nothing, and the value."""
    head = f"# HELP slotboard_{name} {text}\n# TYPE slotboard_{name} {kind}\n"
    return head + "".join(f"slotboard_{name}{labels} {value:.10g}\n" for labels, value in samples)


def _service(meters: Meters) -> Iterable[str]:
    kinds = (("prompt", meters.prompt_tokens), ("generation", meters.generated_tokens))
    samples = [(f'{{slot="{slot}",kind="{kind}"}}', n) for kind, counts in kinds for slot, n in enumerate(counts)]
    yield _family("slot_tokens_total", "counter", "Tokens of a slot in batches.", samples)
    drafts = meters.drafts
    if any(drafted for drafted, _ in drafts):
        yield _family(
            "draft_tokens_total",
            "counter",
            "Drafted tokens that were checked, by slot and outcome.",
            [
                (f'{{slot="{slot}",outcome="{outcome}"}}', n)
                for slot, (drafted, accepted) in enumerate(drafts)
                for outcome, n in (("accepted", accepted), ("rejected", drafted - accepted))
            ],
        )
    served = [sum(pair) for pair in zip(meters.prompt_tokens, meters.generated_tokens, strict=True)]
    yield _family("service_jain", "gauge", "Jain's index over the tokens of the slots, 1: all alike.", [("", jain(served))])
    text = f"Jain's index over the slowdown of the last {RECENT} tasks, 1: all were slowed down alike."
    yield _family("slowdown_jain", "gauge", text, [("", jain(meters.slowdowns))])
    gap = "Most batches in a row that left out a slot with work, since the start."
    yield _family("service_gap_max_iterations", "gauge", gap, [("", meters.longest_gap)])
    yield _family("requests_refused_total", "counter", "Requests that found the queue full.", [("", meters.refused)])
    yield _family("tasks_expired_total", "counter", "Tasks that waited longer than they were to.", [("", meters.expired)])
    yield _family("cohorts_total", "counter", "Cohorts begun under the phase barrier.", [("", meters.cohorts)])


def _gauges(view: Mapping[str, Any], meters: Meters) -> Iterable[str]:
    slots, phase, cohort = view["slots"], view["phase"], view["phase"]["cohort"]
    waiting = [view["iteration"] - (slot["last_service_iteration"] or 0) for slot in slots if slot["state"] == "waiting"]
    gauges = (
        ("queue_oldest_seconds", "How long the oldest task waits for a slot.", view["queue"]["oldest_s"] or 0.0),
        ("kv_used_tokens", "Tokens in the cells of all slots.", view["kv"]["used"]),
        ("kv_size_tokens", "Cells of all slots.", view["kv"]["size"]),
        ("slots_held", "Slots held at the barrier.", sum(slot["state"] == "held" for slot in slots)),
        ("service_gap_iterations", "Batches since the longest waiting slot was served.", max(waiting, default=0)),
        ("cohort_id", "The cohort in hand, 0 without one.", 0 if cohort is None else cohort["id"]),
        ("cohort_members", "Members of the cohort in hand.", 0 if cohort is None else len(cohort["members"])),
        ("cohort_sealed", "Whether the cohort takes no more members.", int(phase["sealed"])),
        ("policy_version", "Version of the scheduling policy.", view["policy"]["version"]),
    )
    for name, text, value in gauges:
        yield _family(name, "gauge", text, [("", value)])
    names = dict.fromkeys((*PHASES, phase["name"]))
    yield _family("phase", "gauge", "1 for the phase in force.", [(f'{{name="{n}"}}', n == phase["name"]) for n in names])
