"""The JSON API of runs: found, started, watched, stopped, and what they found."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.params.functions import Query
from ninja.responses import Status

from dashboard import run_list
from dashboard.api.run_shapes import EXPORT, ResultOut, RunDetail, RunIn, RunOut
from dashboard.kept_results import found_of
from dashboard.run_list import Filters
from scheduler_api import access, strict_json
from scheduler_api.access import Role
from scheduler_api.api_auth import require, sees
from scheduler_api.api_paging import LARGEST, Pages, Shown
from scheduler_api.api_problems import Refused, invalid
from scheduler_api.models import Server
from workers import experiments, gating, selectors, stored
from workers.errors import ExportRefused
from workers.exporting.document import as_json, file_name
from workers.models import Run
from workers.scenarios import Scenario, ScenarioError
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario

type Json = dict[str, Any]

router = Router(tags=["runs"])

LOG_LINES = 100


@router.get("", response=list[RunOut], summary="Runs, the newest first")
@paginate(Pages)
def list_runs(
    request: HttpRequest,
    scenario: str = "",
    server: int | None = Query(None, le=LARGEST),
    by: str = "",
    state: str = Query("", description="a state, or: active, broken (stopped, failed, lost)"),
    verdicts: bool = Query(False, description="work out the verdict of each: seconds for a large run that nobody looked at yet"),
) -> Shown[Run]:
    """Of servers that one may see, and those that came from files."""
    rows = run_list.find(Filters(scenario, "", by, state), access.of(request).servers())
    if state and state not in run_list.STATES:
        rows = rows.filter(state=state)
    return Shown(
        rows if server is None else rows.filter(server_id=server), lambda page: [_out(run, verdict=verdicts) for run in page]
    )


@router.post("", response={201: RunDetail}, summary="Start a run")
def start_run(request: HttpRequest, body: RunIn) -> Status[Json]:
    """It is queued once everything that can be checked beforehand holds; 409 says what does not."""
    server = access.of(request).servers().filter(pk=body.server).first()
    if server is None:
        raise invalid(f"There is no server {body.server}.", "server")
    user = require(request, Role.OPERATOR, server)
    name, text, scenario = _scenario(body)
    policy_a, policy_b = _arms(body, scenario)
    moment = body.not_before
    if moment is not None and timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    if moment is not None and moment <= timezone.now():
        raise invalid("The time to start is over. Leave it out to start now.", "not_before")
    run = experiments.start_run(
        scenario=name,
        text=text,
        server=server,
        policy_a=policy_a,
        policy_b=policy_b,
        repetitions=body.pairs,
        scale=body.scale,
        share=body.share,
        seed=body.seed,
        shards=body.shards,
        order=body.order,
        floor=body.floor,
        wait=body.wait,
        not_before=moment,
        by=user,
    )
    return Status(201, _detail(selectors.get_run(run.pk)))


def _scenario(body: RunIn) -> tuple[str, str, Scenario | LoadScenario]:
    """Name, text ("" of warm-behind-cold) and what it says. Raises ScenarioError, and problems."""
    if bool(body.scenario) == bool(body.text):
        raise invalid("Give either the name of a scenario, or a text.", "scenario")
    if body.text:
        scenario = read(body.text, "text")
        return scenario.name, body.text, scenario
    try:
        entry = stored.entry(body.scenario)
    except ScenarioError as error:
        raise invalid(str(error), "scenario") from None
    if entry.scenario is None:
        raise invalid(entry.fault, "scenario")
    return entry.name, "" if isinstance(entry.scenario, Scenario) else entry.text, entry.scenario


def _arms(body: RunIn, scenario: Scenario | LoadScenario) -> tuple[Json, Json]:
    """Raises gating.ArmFault, and problems."""
    if body.arms:
        if (body.a, body.b) != (None, None):
            raise invalid("Give the arms either in words or as objects.", "arms")
        return gating.arms_of(body.arms, scenario)
    if (body.a, body.b) == (None, None):
        return gating.own_arms(scenario)
    return body.a or {}, body.b or {}


@router.get("/{int:run_id}", response=RunDetail, summary="A run, and how far it is")
def run_detail(request: HttpRequest, run_id: int) -> Json:
    return _detail(run_of(request, run_id))


@router.get("/{int:run_id}/result", response=ResultOut, summary="What a run found")
def run_result(request: HttpRequest, run_id: int) -> HttpResponse:
    """Measures with their intervals, and the verdict. 409 while it is not over."""
    run = run_of(request, run_id)
    if run.active:
        raise Refused(409, "conflict", f"Run {run.pk} is not over: it is {run.state}.")
    found = found_of(run)
    told = {name: value for name, value in found.items() if name not in ("timelines", "pair")} | {"run": run.pk}
    return HttpResponse(strict_json.dumps(told), content_type="application/json")


@router.get(
    "/{int:run_id}/export.json",
    summary="A run as a file",
    openapi_extra={"responses": {200: {"description": "docs/experiments.md", "content": EXPORT}}},
)
def export_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """All that its result is made of, as the console imports it again. 409 while it is not over."""
    run = run_of(request, run_id)
    try:
        content = as_json(run)
    except ExportRefused as refused:
        raise Refused(409, "conflict", refused.text) from None
    headers = {"Content-Disposition": f'attachment; filename="{file_name(run, "json")}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(content, content_type="application/json", headers=headers)


@router.post("/{int:run_id}/stop", response=RunDetail, summary="Stop a run")
def stop_run(request: HttpRequest, run_id: int) -> Json:
    """A waiting or queued one stops at once, a running one within a second, after which the policy is put back; one that is over
    stays as it is."""
    run = run_of(request, run_id)
    experiments.request_stop(run, require(request, Role.OPERATOR, _server_of(run)))
    return _detail(run_of(request, run_id))


def run_of(request: HttpRequest, run_id: int) -> Run:
    """Raises 404 for a run that is not there, or not for this person to see."""
    try:
        run = selectors.get_run(run_id)
    except Run.DoesNotExist:
        raise HttpError(404, "No such run.") from None
    if not sees(request, _server_of(run)):
        raise HttpError(404, "No such run.")
    return run


def _server_of(run: Run) -> Server | None:
    return run.server if run.server_id is not None else None


def _out(run: Run, *, verdict: bool) -> Json:
    same = ("id", "scenario", "state", "created_at", "not_before", "started_at", "finished_at", "error")
    server = _server_of(run)
    progress = {"done": run.progress_done, "total": run.progress_total, "text": run.progress_text}
    return {name: getattr(run, name) for name in same} | {
        "server": run.server_id,
        "server_name": server.name if server is not None else str(((run.imported or {}).get("server") or {}).get("name", "")),
        "arms": {"A": run.policy_a, "B": run.policy_b},
        "pairs": run.repetitions,
        "progress": progress | {"load": selectors.progress(run) if run.active else None},
        "by": run.created_by.get_username() if run.created_by is not None else "",
        "imported": run.imported is not None,
        "verdict": None if not verdict else "" if run.active else run_list.verdict_of(run),
    }


def _detail(run: Run) -> Json:
    same = ("order", "floor", "scale", "scale_auto", "share", "shards", "seed", "scenario_text", "stop_reason", "warnings")
    told = {name: getattr(run, name) for name in (*same, "policy_restored")}
    return _out(run, verdict=True) | told | {"log": selectors.log(run, LOG_LINES)}
