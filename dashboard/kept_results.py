"""Results of runs that are over, kept by the process that computed them."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from workers import selectors
from workers.models import Run, RunState


def found_of(run: Run, pair: int | None = None) -> dict[str, Any]:
    """The results of a run that is over, which are computed once: bootstraps over many measures take seconds."""
    others = Run.objects.filter(scenario=run.scenario, state=RunState.FINISHED)
    newest = others.order_by("-id").values_list("pk", flat=True).first()
    found = _kept_results(run.pk, run.created_at, run.state, newest)
    numbers = {int(point[0]) for measure in found["measures"] for point in measure["points"]}
    if pair is None or pair == found["pair"] or pair not in numbers:
        return found
    timelines = {block.arm: block.timeline for block in run.blocks.filter(pair=pair, floor=0)}
    return {**found, "pair": pair, "timelines": timelines}


@lru_cache(maxsize=16)
def _kept_results(pk: int, created_at: datetime, state: str, newest: int | None) -> dict[str, Any]:
    """Its birth tells a run from one whose number is used again. `newest` may be a run with equal arms, whose noise is quoted."""
    return selectors.results(selectors.get_run(pk))
