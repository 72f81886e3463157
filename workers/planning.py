"""How long a run will take, from what is known of its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.models import Run, RunState
from workers.scenarios import Scenario, Sizes

ASSUMED_TOKENS_PER_S = 3000.0  # a small model on two cores; the page calls it an assumption


def expected(
    server_state: Mapping[str, Any] | None, scenario: Scenario, sizes: Sizes, scale: float, repetitions: int, share: float
) -> dict[str, Any]:
    """Seconds. From the last run on this server where there is one, scaled by the number of tokens."""
    cold_s, short_s, warm_s, basis = _alone(server_state, scenario, sizes, scale)
    block_s = max(cold_s, share * cold_s) + short_s
    return {
        "cold_s": cold_s,
        "short_s": short_s,
        "warm_s": warm_s,
        "short_at_s": share * cold_s,
        "block_s": block_s,
        "total_s": warm_s + cold_s + short_s + 2 * repetitions * block_s,
        "basis": basis,
    }


def _alone(
    server_state: Mapping[str, Any] | None, scenario: Scenario, sizes: Sizes, scale: float
) -> tuple[float, float, float, str]:
    server_id = ((server_state or {}).get("server") or {}).get("id")
    last = Run.objects.filter(server_id=server_id, scenario=scenario.name, state=RunState.FINISHED).first() if server_id else None
    if last is not None and "cold_alone_s" in last.conditions:
        times = last.conditions
        factor = scale / last.scale
        return (
            times["cold_alone_s"] * factor,
            times["short_alone_s"] * factor,
            times["warm_s"] * factor,
            f"from run {last.pk}" + ("" if factor == 1 else ", scaled by its number of tokens"),
        )
    rate = ASSUMED_TOKENS_PER_S
    return sizes.cold / rate, sizes.short / rate, sizes.depth / rate, f"assuming {rate:,.0f} prompt tokens a second"
