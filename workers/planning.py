"""How long a run will take, from what is known of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_api.models import Server
from workers.models import Run, RunState
from workers.scenarios import Scenario, Sizes
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN

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
    return sizes.cold / rate, sizes.short / rate, sizes.depth / rate, f"assuming {rate:.0f} prompt tokens a second"


@dataclass(frozen=True, slots=True)
class Speed:
    """Prompt tokens a second of one prompt alone; `run` measured it, None when it is an assumption."""

    tokens_per_s: float
    run: Run | None = None


def speed_of(server: Server | None) -> Speed:
    """From the newest run that measured it on this server."""
    measured = Run.objects.filter(server=server).exclude(conditions={}).only("conditions", "started_at")[:50] if server else ()
    for run in measured:
        if rate := measured_speed(run.conditions):
            return Speed(rate, run)
    return Speed(ASSUMED_TOKENS_PER_S)


def measured_speed(conditions: Mapping[str, Any]) -> float | None:
    """What a run's calibration found: said by a load's, worked out from the cold prompt of warm-behind-cold."""
    fitted = conditions.get("fitted") or {}
    if fitted.get("speed"):
        return float(fitted["speed"])
    cold, tokens = conditions.get("cold_alone_s"), (conditions.get("tokens") or {}).get("cold")
    return float(tokens) / float(cold) if cold and tokens else None


def auto_scale(speed: float, written_for: float, n_ctx: int | None, needed: Callable[[float], int]) -> float:
    """Sizes in proportion to the speed, so that times stay as written; less where a slot is too small for that.

    `needed(scale)`: the tokens that a slot must hold.
    """
    scale = min(max(speed / written_for, SCALE_MIN), SCALE_MAX)
    while n_ctx is not None and scale > SCALE_MIN and (tokens := needed(scale)) > n_ctx:
        scale = max(SCALE_MIN, scale * min(0.95, n_ctx / tokens))
    return scale
