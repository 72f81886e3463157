"""The form of a new experiment: what was asked, which targets can run it, and the drawing of what they would be sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from dashboard import arms, charts
from dashboard.charts import LoadDrawing, words
from scheduler_api import selectors as registry
from scheduler_api.models import Server
from workers import selectors as runs
from workers.experiments import MOST_REPETITIONS, plan_of
from workers.models import Run
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN

SCENARIO = "warm-behind-cold"
N_BATCH = 2048  # drawn when the target's own is not known
NUMBERS = {"repetitions": "8", "scale": "1.0", "share": "0.1"}


@dataclass(frozen=True, slots=True)
class Target:
    """A registered server; `why_not` says why it cannot be a target, `facts` what it is."""

    server: Server
    state: Mapping[str, Any] | None
    why_not: str
    facts: str

    @property
    def fields(self) -> dict[str, Any]:
        return dict(((self.state or {}).get("switching") or {}).get("fields") or {})


@dataclass(slots=True)
class Asked:
    """What the form says. `problems` are sentences about fields that do not hold a usable number."""

    server: int | None
    repetitions: int
    scale: float
    share: float
    values: dict[str, str]  # the numbers as typed
    sent: Mapping[str, Any]  # everything, for the arms
    problems: list[str] = field(default_factory=list)


def read(sent: Mapping[str, Any], copied: Run | None = None) -> Asked:
    """From a query or a posted form; `copied` is the run to take what is missing from."""
    fallback: dict[str, Any] = dict(NUMBERS)
    if copied is not None:
        fallback = {
            "repetitions": copied.repetitions,
            "scale": f"{copied.scale:g}",
            "share": f"{copied.share:g}",
            "server": copied.server_id,
        }
        sent = {**_arm_fields(copied), **{key: sent[key] for key in sent}}
    elif not any(key[:2] in ("a-", "b-") for key in sent):
        defaults = {f"{arm.lower()}-{name}": value for arm, policy in arms.DEFAULTS.items() for name, value in policy.items()}
        sent = {**defaults, **{key: sent[key] for key in sent}}
    values = {key: str(sent.get(key, fallback[key])) for key in NUMBERS}
    problems: list[str] = []
    server = str(sent.get("server", fallback.get("server", "")))
    return Asked(
        server=int(server) if server.isdigit() else None,
        repetitions=int(_number(values, "repetitions", "Pairs", 1, MOST_REPETITIONS, problems, whole=True)),
        scale=_number(values, "scale", "Scale", SCALE_MIN, SCALE_MAX, problems),
        share=_number(values, "share", "The share", 0.0, 0.9, problems),
        values=values,
        sent=sent,
        problems=problems,
    )


def _arm_fields(run: Run) -> dict[str, Any]:
    return {
        f"{arm}-{name}": value for arm, policy in (("a", run.policy_a), ("b", run.policy_b)) for name, value in policy.items()
    }


def _number(
    values: Mapping[str, str], name: str, label: str, low: float, high: float, problems: list[str], whole: bool = False
) -> float:
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if math.isfinite(value) and low <= value <= high and not (whole and value != int(value)):
        return value
    kind = "a whole number" if whole else "a number"
    problems.append(f"{label} must be {kind} from {low:g} to {high:g}; it is {values[name] or 'empty'}.")
    return float(NUMBERS[name])


def targets(within: QuerySet[Server]) -> list[Target]:
    """The servers of `within`, those that can be measured first."""
    servers = registry.list_servers(within)
    states = registry.live_states([server.pk for server in servers])
    found = [_target(server, states.get(server.pk)) for server in servers]
    return sorted(found, key=lambda target: (bool(target.why_not), target.server.name))


def _target(server: Server, state: Mapping[str, Any] | None) -> Target:
    if state is None:
        return Target(server, None, "No observer reports on it, so it is not known what it can do.", "")
    info = state.get("info") or {}
    switching = state.get("switching") or {}
    if state["health"]["state"] not in ("up", "silent"):
        why_not = f"It does not serve now: {state['health'].get('detail') or state['health']['text']}"
    elif not switching.get("can"):
        why_not = switching.get("why_not") or "Its policies cannot be switched."
    elif (run := runs.active_run(server)) is not None:
        why_not = f"Run {run.pk} is measuring it; one at a time."
    elif (info.get("n_slots") or 0) < 2:
        why_not = "It has one slot; the scenario needs two."
    else:
        why_not = ""
    return Target(server, state, why_not, _facts(info))


def _facts(info: Mapping[str, Any]) -> str:
    parts = [info.get("model") or "", info.get("build") or ""]
    if info.get("n_slots") and info.get("n_ctx_slot"):
        parts.append(f"{info['n_slots']} × {words.whole(info['n_ctx_slot'])} tokens")
    return ", ".join(part for part in parts if part)


def choose(listed: list[Target], asked: Asked) -> Target | None:
    """The target asked for, else the first that can be measured, else the first."""
    wanted = next((target for target in listed if target.server.pk == asked.server), None)
    return wanted or next((target for target in listed if not target.why_not), None) or next(iter(listed), None)


def drawing_of(asked: Asked, target: Target | None) -> tuple[dict[str, Any], LoadDrawing]:
    """(what `workers.experiments.plan_of` says, with words for the page; the drawing)."""
    state = target.state if target else None
    plan = plan_of(state, asked.scale, asked.repetitions, asked.share)
    tokens, slots, times = plan["tokens"], plan["slots"], plan["expected"]
    n_batch = plan["n_batch"] or N_BATCH
    drawn = charts.planned_load(tokens["cold"], tokens["short"], n_batch, asked.share, asked.repetitions)
    cold = f"A cold prompt of {tokens['cold']} tokens on slot {slots['cold']}"
    return {
        **plan,
        "n_batch": n_batch,
        "pairs": asked.repetitions,
        "share_words": f"{asked.share * 100:.3g} %",
        "told": [*asked.problems, *plan["problems"], *plan["warnings"]],
        "expected_words": words.span(times["total_s"]),
        "basis": times["basis"],
        "alt": f"{cold}; later one of {tokens['short']} on slot {slots['short']}, which holds {tokens['depth']}",
    }, drawn
