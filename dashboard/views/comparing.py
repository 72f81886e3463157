"""Two runs beside each other, a scenario over time, and a run's badge."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser, User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import cache_control
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_safe
from django_htmx.middleware import HtmxDetails

from dashboard import arms, badge, charts, compare_page, roles, run_page, trend_page
from dashboard.csp import CHARTS
from dashboard.measures import DRAWN, KINDS, kind_of
from dashboard.people import links
from dashboard.people.models import ShareLink
from dashboard.views.results import run_or_404
from workers import load_results, sample_values, selectors
from workers.models import Run, RunState
from workers.scenarios import ScenarioError

MOST_OFFERED = 60  # runs in the picker
MOST_CHARTS = 6  # streams that are drawn


class Request(HttpRequest):
    htmx: HtmxDetails
    user: User


@require_safe
@csp_override(CHARTS)
def compare(request: Request, pk: int) -> HttpResponse:
    first = run_or_404(pk)
    offered = _offered(request, first)
    wanted = request.GET.get("with", "").strip()
    arm = "A" if request.GET.get("arm") == "A" else "B"
    context: dict[str, Any] = {"run": first, "offered": offered, "wanted": wanted, "arm": arm, "title": _title(first)}
    second = _second(request, wanted)
    if wanted and second is None:
        context["error"] = f"There is no run {wanted[:20]} that you may see."
    elif second is not None and second.pk == first.pk:
        context["error"] = f"Run {first.pk} beside itself shows nothing. Choose another run."
    elif second is not None and second.active:
        context["error"] = f"Run {second.pk} is not over yet. Its result can be compared when it is."
    elif second is not None:
        context |= _compared(first, second, arm)
    return render(request, "experiments/compare.html", context)


def _title(run: Run) -> str:
    return arms.title(*selectors.arm_labels(run))


def _offered(request: Request, first: Run) -> list[dict[str, Any]]:
    """Runs that are over, those of the same scenario before the others."""
    runs = [
        run for run in selectors.list_runs(within=roles.visible(request.user), limit=300) if not run.active and run.pk != first.pk
    ]
    runs.sort(key=lambda run: (run.scenario != first.scenario, -run.pk))
    return [{"run": run, "title": _title(run), "state": run_page.state_of(run).word} for run in runs[:MOST_OFFERED]]


def _second(request: Request, wanted: str) -> Run | None:
    if not wanted.isdigit() or len(wanted) > 12:
        return None
    try:
        run = selectors.get_run(int(wanted))
    except Run.DoesNotExist:
        return None
    return run if run.server_id is None or roles.may(request.user, roles.Role.VIEWER, run.server) else None


def _compared(first: Run, second: Run, arm: str) -> dict[str, Any]:
    found = selectors.compare(first, second)
    own = [measure for measure in found["measures"] if not measure["client"]]  # a client's are those of its streams again
    rows = compare_page.as_ratios(own, arm)
    drawn = charts.forest(rows)
    differing, same = compare_page.settings_of(found)
    measure = DRAWN[0]
    names, figures = _figures(first, second, arm, measure)
    return {
        "second": second,
        "found": found,
        "differing": differing,
        "same": same,
        "forest": drawn,
        "groups": compare_page.compared_groups(rows, drawn.marks),
        "effects": compare_page.effect_rows(found),
        "verdict": "" if found["reasons"] else compare_page.verdict(found, rows, arm),
        "arm_name": found["first"]["arms"][arm],
        "method": next((row["difference"]["method_words"] for row in rows if row["difference"]["method"]), ""),
        "chart_names": names,
        "figures": figures,
        "measure_kind": KINDS[measure],
    }


def _figures(first: Run, second: Run, arm: str, measure: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Of each stream that both have, how its requests are distributed in one arm of the two runs."""
    if not first.scenario_text or not second.scenario_text:
        return [], {}
    kind = KINDS[measure]
    sides = [sample_values.by_stream(run, measure) for run in (first, second)]
    names, figures = [], {}
    for key, stream in enumerate([name for name in sides[0] if name in sides[1]][:MOST_CHARTS]):
        flat = [[value * kind.factor for each in side[stream][arm].values() for value in each] for side in sides]
        told = (f"run {first.pk}", f"run {second.pk}")
        figures[f"fig-{key}-dist"] = charts.distribution(flat[0], flat[1], kind.unit, kind.what, told)
        names.append({"key": key, "name": stream, "n": f"{len(flat[0])} and {len(flat[1])}"})
    return names, figures


@require_safe
@csp_override(CHARTS)
def trend(request: Request, pk: int) -> HttpResponse:
    run = run_or_404(pk)
    found = selectors.trend(run)
    measure = trend_page.chosen(found["measures"], request.GET.get("measure", ""), _limited(run))
    context = {
        "run": run,
        "found": found,
        "title": f"{run.scenario.replace('-', ' ').capitalize()} over time",
        "arm_a": found["arms"]["A"],
        "arm_b": found["arms"]["B"],
        "others": _others(request, run),
        "measure": measure,
        "choices": trend_page.choices(found["measures"]),
    }
    if measure is not None:
        context |= {
            "measure_name": trend_page.name_of(measure),
            "kind": kind_of(measure),
            "figures": trend_page.figures(measure),
            "rows": trend_page.rows(measure),
            "says": trend_page.says(measure),
        }
    return render(request, "experiments/trend.html", context)


def _others(request: Request, run: Run) -> list[dict[str, Any]]:
    """The newest finished run of the scenario for each other server and pair of arms."""
    seen = {(run.server_id, str(run.policy_a), str(run.policy_b))}
    found = []
    for other in _finished(request, run.scenario):
        key = (other.server_id, str(other.policy_a), str(other.policy_b))
        if key not in seen:
            seen.add(key)
            found.append({"run": other, "title": _title(other)})
    return found[:12]


def _finished(request: Request, scenario: str) -> list[Run]:
    runs = Run.objects.select_related("server").filter(scenario=scenario, state=RunState.FINISHED, imported__isnull=True)
    return list(runs.filter(server__in=roles.visible(request.user)).order_by("-id")[:300])


@require_safe
def scenario_trend(request: Request, name: str) -> HttpResponse:
    """To the trend of the scenario's newest finished run; without one, back to the scenario, which says so."""
    newest = next(iter(_finished(request, name)), None)
    return redirect("run-trend", pk=newest.pk) if newest is not None else redirect("scenario", name=name)


@login_not_required
@require_safe
@cache_control(private=True, max_age=60)
def run_badge(request: HttpRequest, pk: int) -> HttpResponse:
    """For those who may see the run, and for those to whom a link has shown it."""
    if isinstance(request.user, AnonymousUser) and not _shared(request, pk):
        raise Http404("Not here.")
    run = run_or_404(pk)
    name, text, colour = _badge(run)
    left, right = badge.width_of(name), badge.width_of(text)
    context = {
        **{"name": name, "text": text, "colour": colour, "left": left, "right": right, "width": left + right},
        **{"left_at": left / 2, "right_at": left + right / 2},
        **{"left_text": left - 2 * badge.PAD, "right_text": right - 2 * badge.PAD},
    }
    return render(request, "experiments/badge.svg", context, content_type="image/svg+xml")


def _shared(request: HttpRequest, pk: int) -> bool:
    of_run = ShareLink.objects.filter(run_id=pk).values_list("pk", flat=True)
    return any(links.opened_with(link, request.COOKIES) is not None for link in of_run)


def _badge(run: Run) -> tuple[str, str, str]:
    if run.active:
        return run.scenario, "running", badge.COLOURS["running"]
    found = selectors.results(run)
    if not found["complete_pairs"]:
        word = str(run.state) if run.state != RunState.FINISHED else "no result"
        return run.scenario, word, badge.COLOURS.get(word, badge.GREY)
    return badge.told(badge.primary(found["measures"], _limited(run)))


def _limited(run: Run) -> list[str]:
    """Streams with limits; none where today's schema does not read the scenario any more."""
    try:
        return list(load_results.limits_of(run)) if run.scenario_text else []
    except ScenarioError:
        return []
