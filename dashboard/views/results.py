"""Pages that show what runs of experiments found: the result of one, two beside each other, a scenario over time."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.middleware import HtmxDetails

from dashboard import (
    arms,
    charts,
    command_line,
    kept_results,
    load_page,
    measure_groups,
    results,
    run_conditions,
    run_page,
    sample_table,
)
from dashboard import roles as who
from dashboard.charts.base import Figure
from dashboard.measures import DRAWN, KINDS
from dashboard.roles import Role
from workers import sample_values, selectors
from workers.models import Run
from workers.scenarios import ScenarioError
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario


class Request(HttpRequest):
    htmx: HtmxDetails
    user: User


def run_or_404(pk: int) -> Run:
    try:
        return selectors.get_run(pk)
    except Run.DoesNotExist:
        raise Http404(f"There is no run {pk}.") from None


def result_context(request: Request, run: Run) -> dict[str, Any]:
    """What the page of a run that is over shows."""
    pair = request.GET.get("pair", "")
    found = kept_results.found_of(run, int(pair) if pair.isdigit() and len(pair) < 8 else None)
    drawn = results.forest_of(found["measures"], found["noise"])
    endings = run_page.endings(run, found["complete_pairs"])
    counts = sample_values.sample_counts(run)
    blocks = sample_values.blocks_of(run)
    return {
        **frame_of(request, run, found),
        "facts": run_page.facts(run, timezone.now(), sample_table.request_words(counts)),
        "endings": endings,
        "verdict": results.verdict_parts(found["verdict"]),
        "notes": results.notes(found),
        "warnings": [text for text in found["warnings"] if not any(text in line.text for line in endings)],
        "checks": run_page.checks(run, counts, blocks),
        "conditions": run_conditions.conditions(run),
        "blocks": run_page.block_rows(blocks),
        "forest": drawn,
        "interval_head": results.interval_head(found["measures"]),
        "method": found["method"],
        "timeline_figures": results.timeline_figures(found["timelines"]),
        "timeline_arms": results.timeline_arms(found),
        "pair": results.pair_choice(found, pair),
        "command": command_line.of_run(run),
        **samples_context(request, run),
        "sampled": any(block.tally for block in blocks),
        **(_load_context(request, run, found, drawn) if run.scenario_text else _pair_context(run, found, drawn)),
    }


def frame_of(request: Request, run: Run, found: dict[str, Any]) -> dict[str, Any]:
    label_a, label_b = found["arms"]["A"], found["arms"]["B"]
    return {
        "run": run,
        "title": arms.title(label_a, label_b),
        "arm_a": label_a,
        "arm_b": label_b,
        "state": run_page.state_of(run),
        "may_run": who.may(request.user, Role.OPERATOR, run.server),
        "now": timezone.now(),
        "results": found,
    }


def _pair_context(run: Run, found: dict[str, Any], drawn: Any) -> dict[str, Any]:
    """Of warm-behind-cold: two requests a block."""
    pairs = found["pairs"]
    return {
        "groups": [measure_groups.Group("", "", "", tuple(results.measure_rows(found["measures"], drawn)), "", folded=False)],
        "figures": results.pair_figures(pairs, 0) if pairs else {},
        "chart_roles": results.chart_roles(run.conditions, pairs),
    }


def _load_context(request: Request, run: Run, found: dict[str, Any], drawn: Any) -> dict[str, Any]:
    """Of a scenario made of streams."""
    scenario = scenario_of(run)
    stretch = run.conditions.get("fitted", {}).get("times", 1.0)
    measure = load_page.measure_choice(request.GET.get("measure", ""))
    rows, figures = load_page.request_figures(sample_values.by_stream(run, measure), measure, scenario)
    levels = load_page.levels(found["stages"], found["carries"], scenario, stretch, found["arms"])
    clients = measure_groups.clients_apart(scenario)
    says, outcomes = load_page.outcomes(found["outcomes"])
    fair, fair_more = measure_groups.split_rows(measure_groups.fair_rows(found["fairness"]["measures"], clients=clients))
    drawings: dict[str, Figure] = {**figures, **{f"fig-levels-{at}": each.figure for at, each in enumerate(levels)}}
    if any(found["searches"].values()):
        drawings["fig-search"] = charts.search(found["searches"])
    return {
        "scenario": scenario,
        "groups": measure_groups.groups(found, drawn, scenario, stretch, clients=clients),
        "fair_rows": fair,
        "fair_more": fair_more,
        "searches": found["searches"] if any(found["searches"].values()) else {},
        "measure": measure,
        "measure_kind": KINDS[measure],
        "measure_choices": [(key, KINDS[key].name) for key in DRAWN],
        "chart_rows": rows,
        "figures": drawings,
        "levels": levels,
        "outcomes_say": says,
        "outcomes": outcomes,
    }


def scenario_of(run: Run) -> LoadScenario | None:
    """As it was when the run was started; None where today's schema does not read it any more."""
    try:
        return read(run.scenario_text)
    except ScenarioError:
        return None


def samples_context(request: Request, run: Run) -> dict[str, Any]:
    wanted = sample_table.wanted_of(request.GET.dict())
    asked = request.GET.get("page", "")
    page = sample_values.sample_page(run, wanted, int(asked) if asked.isdigit() and len(asked) < 8 else 1, sample_table.PAGE)
    start = run.started_at.timestamp() if run.started_at else min((each.sent_at for each in page.samples), default=0.0)
    return {
        "run": run,
        "samples_open": bool(asked or any(wanted.values())),
        "columns": sample_table.COLUMNS,
        "samples": sample_table.table(page.samples, start),
        "sample_count": page.total,
        "pager": sample_table.pager(page, wanted),
        "choices": sample_values.sample_choices(run) if page.total else {},
    }


@require_safe
def run_samples(request: Request, pk: int) -> HttpResponse:
    """A page of the samples' table, for the page that is open."""
    return render(request, "experiments/_samples.html#samples", samples_context(request, run_or_404(pk)))
