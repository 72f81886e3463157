"""What a run of warm-behind-cold would do, from what is known of its server before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.analysis.order import default_floor
from workers.checks import batch_warning, context_problem, kv_warning
from workers.errors import ExperimentRefused
from workers.planning import expected
from workers.scenarios import Scenario, ScenarioError, Sizes, load, names


def is_pair(name: str) -> bool:
    """Whether a scenario has the form of warm-behind-cold."""
    return name in names()


def checked(name: str, scale: float) -> tuple[Scenario, Sizes]:
    """Raises ExperimentRefused."""
    try:
        scenario = load(name)
        return scenario, scenario.sizes(scale)
    except ScenarioError as error:
        raise ExperimentRefused(str(error)) from error


def plan_of(server_state: Mapping[str, Any] | None, scale: float, repetitions: int, share: float | None = None) -> dict[str, Any]:
    """What a run would do, from a server's live state (docs/protocol.md section 2; None when nothing is known).

    Keys: ok, problems and warnings (sentences), slots {"cold", "short"}, tokens {"cold", "depth", "short", "n_predict"},
    context_needed, context_available, n_batch, floor (pairs of equal arms first), blocks, requests, order ("AB BA AB"),
    share, and the expected times {"cold_s", "short_s", "short_at_s", "block_s", "warm_s", "total_s", "basis"}, where basis says
    where they come from.
    """
    name = "warm-behind-cold"
    try:
        scenario, sizes = checked(name, scale)
    except ExperimentRefused as refused:
        return {"ok": False, "problems": [refused.text], "warnings": []}
    info = (server_state or {}).get("info") or {}
    switching = (server_state or {}).get("switching") or {}
    problems = [context_problem(info.get("n_ctx_slot"), info.get("n_slots"), scenario, sizes)]
    if switching and not switching.get("can"):
        problems.append(switching.get("why_not") or "This server does not offer to switch policies.")
    warnings = [kv_warning(info.get("kv_mode")), batch_warning(info.get("n_batch"), sizes)]
    share = scenario.share if share is None else share
    floor = default_floor(repetitions, equal_arms=False)
    return {
        "ok": not any(problems),
        "problems": [text for text in problems if text],
        "warnings": [text for text in warnings if text],
        "slots": {"cold": scenario.cold.slot, "short": scenario.short.slot},
        "tokens": {"cold": sizes.cold, "depth": sizes.depth, "short": sizes.short, "n_predict": sizes.n_predict},
        "context_needed": sizes.context_needed,
        "context_available": info.get("n_ctx_slot"),
        "n_batch": info.get("n_batch"),
        "floor": floor,
        "blocks": 2 * (repetitions + floor) + 1,
        "requests": 3 + 6 * (repetitions + floor),
        "order": " ".join("AB" if pair % 2 else "BA" for pair in range(1, repetitions + 1)),
        "share": share,
        "expected": expected(server_state, scenario, sizes, scale, repetitions + floor, share),
    }
