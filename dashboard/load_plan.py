"""What a new experiment would send to its target, and about how long it takes: for the form, of both forms of scenarios."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dashboard import charts
from dashboard.charts import LoadDrawing, words
from dashboard.charts.planned import PlannedDrawing, planned
from dashboard.experiment_form import Asked
from dashboard.targets import Target
from workers import planning
from workers.experiments import plan_of
from workers.load.plan import make_plan, with_sizes
from workers.load.planned import Plan, Scaling
from workers.load.preview import MOST_DRAWN, count_of, preview
from workers.loadrun import MOST_SEED, PROBE_TOKENS, texts_of
from workers.planning import Speed
from workers.scenarios import ScenarioError
from workers.scenarios.streams import LoadScenario

N_BATCH = 2048  # drawn when the target's own is not known
CHARACTERS_A_TOKEN = 4  # of a text that no server has counted yet


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Of a scenario made of streams. `drawing` None: it cannot be planned, or is too large to be drawn; `told` says why."""

    drawing: PlannedDrawing | None
    speed: Speed
    scale: float
    stretch: float
    block_s: float = 0.0
    total_s: float = 0.0
    blocks: int = 0
    plan: Plan | None = None
    told: list[str] = field(default_factory=list)

    @property
    def expected(self) -> str:
        return words.span(self.total_s)

    @property
    def block(self) -> str:
        return words.span(self.block_s)

    @property
    def scale_words(self) -> str:
        return f"{self.scale:.3g}"

    @property
    def speed_words(self) -> str:
        rate = f"{words.whole(self.speed.tokens_per_s)} prompt tokens a second"
        return (
            f"{rate}, measured by run {self.speed.run.pk}" if self.speed.run else f"{rate} assumed, since no run measured it yet"
        )


def of_load(scenario: LoadScenario, target: Target | None, scale: float | str, pairs: int, seed: int | None = None) -> LoadPlan:
    """The load of the first pair's blocks; `target` None takes the server that the scenario was written for."""
    speed = planning.speed_of(target.server) if target else Speed(scenario.written_for)
    count = count_of(scenario)
    if count > MOST_DRAWN:
        told = f"These are about {words.whole(count)} requests a block, too many to draw: from {words.whole(MOST_DRAWN)} on."
        return LoadPlan(None, speed, 1.0, 1.0, told=[told])
    try:
        files = texts_of(scenario)
        first = make_plan(scenario, 0, Scaling(), files)
        factor = _scale(scenario, scale, speed, target, files) if target or scale != "auto" else 1.0
        scaling = Scaling.fitted(factor, scenario.written_for, speed.tokens_per_s)
        drawn_from = ((seed or 0) + 1) % MOST_SEED
        plan = with_sizes(
            make_plan(scenario, drawn_from, scaling, files, "1A"), [len(text) // CHARACTERS_A_TOKEN for text in first.texts]
        )
    except (ScenarioError, ValueError) as error:
        return LoadPlan(None, speed, 1.0, 1.0, told=[str(error)])
    shown = preview(plan, speed.tokens_per_s)
    slots = {stream.name: stream.slot for stream in scenario.streams}
    warming = sum(each.n_prompt for each in plan.warming) / speed.tokens_per_s
    return LoadPlan(
        drawing=planned(shown.arrivals, shown.lasts_s, slots),
        speed=speed,
        scale=factor,
        stretch=scaling.time,
        block_s=shown.lasts_s,
        total_s=2 * PROBE_TOKENS / speed.tokens_per_s + warming + 2 * pairs * shown.lasts_s,
        blocks=2 * pairs + 1,
        plan=plan,
    )


def _scale(scenario: LoadScenario, asked: float | str, speed: Speed, target: Target | None, files: dict[str, str]) -> float:
    if asked != "auto":
        return float(asked)

    def needed(scale: float) -> int:
        return make_plan(scenario, 0, Scaling(scale), files).context_needed

    return planning.auto_scale(speed.tokens_per_s, scenario.written_for, target.n_ctx if target else None, needed)


def of_pair(asked: Asked, target: Target | None, floor: int = 0) -> tuple[dict[str, Any], LoadDrawing]:
    """(what `workers.experiments.plan_of` says, with words for the page and the floor that was asked for; the drawing)."""
    scale = 1.0 if asked.scale == "auto" else asked.scale
    plan = plan_of(target.state if target else None, scale, asked.repetitions, asked.share)
    tokens, slots, times = plan["tokens"], plan["slots"], plan["expected"]
    n_batch, pairs = plan["n_batch"] or N_BATCH, asked.repetitions + floor
    total_s = times["warm_s"] + times["cold_s"] + times["short_s"] + 2 * pairs * times["block_s"]
    drawn = charts.planned_load(tokens["cold"], tokens["short"], n_batch, asked.share, asked.repetitions)
    cold = f"A cold prompt of {tokens['cold']} tokens on slot {slots['cold']}"
    return {
        **plan,
        "n_batch": n_batch,
        "pairs": asked.repetitions,
        "blocks": 2 * pairs + 1,
        "requests": 3 + 6 * pairs,
        "share_words": f"{asked.share * 100:.3g} %",
        "told": [*plan["problems"], *plan["warnings"]],
        "expected_words": words.span(total_s),
        "basis": times["basis"],
        "alt": f"{cold}; later one of {tokens['short']} on slot {slots['short']}, which holds {tokens['depth']}",
    }, drawn
