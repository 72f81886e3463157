"""The JSON API of runs: found, started, watched, stopped, and what they found."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Field, Router, Schema
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.params.functions import Query
from ninja.responses import Status
from pydantic import field_validator

from dashboard import run_list
from dashboard.run_list import Filters
from dashboard.views.results import found_of
from scheduler_api import access, strict_json
from scheduler_api.access import Role
from scheduler_api.api_auth import require, sees
from scheduler_api.api_paging import Pages, Shown
from scheduler_api.api_problems import Refused, invalid
from scheduler_api.api_schema import example
from scheduler_api.models import Server
from workers import experiments, gating, selectors, stored
from workers.analysis.order import ORDERS
from workers.experiments import MOST_FLOOR, MOST_REPETITIONS, MOST_SHARDS
from workers.loadrun import MOST_SEED
from workers.models import Run
from workers.scenarios import Scenario, ScenarioError
from workers.scenarios.reading import read
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN
from workers.scenarios.streams import LoadScenario

type Json = dict[str, Any]

router = Router(tags=["runs"])

LOG_LINES = 100
LISTED: Json = {
    "id": 12,
    "scenario": "warm-behind-cold",
    "server": 1,
    "server_name": "local",
    "state": "finished",
    "arms": {"A": {"prefill_order": "physical"}, "B": {"prefill_order": "rotating"}},
    "pairs": 8,
    "progress": {"done": 19, "total": 19, "text": ""},
    "by": "mira",
    "created_at": "2026-05-01T09:00:00Z",
    "not_before": None,
    "started_at": "2026-05-01T09:00:01Z",
    "finished_at": "2026-05-01T09:05:40Z",
    "imported": False,
    "verdict": "4.1 × sooner",
    "error": "",
}
LINE = {"at": "2026-05-01T09:00:01Z", "level": "info", "source": "console", "text": "Sent to the workers by mira."}
RATIO = {"median": 0.24, "low": 0.22, "high": 0.27, "level": 0.9922, "n": 8}
RESULT: Json = {
    "run": 12,
    "complete_pairs": 8,
    "verdict": "The short request finished sooner under rotating.",
    "arms": {"A": "physical", "B": "rotating"},
    "measures": [{"key": "short_wall", "label": "short request", "unit": "s", "ratio": RATIO, "word": "faster"}],
    "warnings": [],
    "notes": [],
}
STARTED: Json = {"server": 1, "scenario": "warm-behind-cold", "arms": "physical,rotating", "pairs": 8, "wait": True}


class ProgressOut(Schema):
    """Blocks that are done, of all; `load`: the requests of the block that is being sent (workers.selectors.progress)."""

    done: int
    total: int
    text: str
    load: dict[str, Any] | None = None

    model_config = example(**LISTED["progress"])


class RunOut(Schema):
    """`state`: waiting, queued, running, stopping, finished, stopped, failed or lost. `server` null: it came from a file.
    `verdict` in few words, "" while there is none."""

    id: int
    scenario: str
    server: int | None
    server_name: str
    state: str
    arms: dict[str, dict[str, Any]]
    pairs: int
    progress: ProgressOut
    by: str
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    imported: bool
    verdict: str
    error: str

    model_config = example(**LISTED)


class LogLineOut(Schema):
    at: datetime
    level: str
    source: str
    text: str

    model_config = example(**LINE)


class RunDetail(RunOut):
    """With all that starts the same again, and the last lines of its log. `scenario_text` is "" for warm-behind-cold."""

    order: str
    floor: int
    scale: float
    scale_auto: bool
    share: float
    shards: int
    seed: int
    scenario_text: str
    stop_reason: str
    warnings: list[str]
    policy_restored: bool | None = Field(..., description="null: it did not change the policy, or is not over")
    log: list[LogLineOut]

    model_config = example(
        **LISTED,
        order="abba",
        floor=1,
        scale=1.0,
        scale_auto=False,
        share=0.1,
        shards=1,
        seed=7,
        scenario_text="",
        stop_reason="",
        warnings=[],
        policy_restored=True,
        log=[LINE],
    )


class RunIn(Schema):
    """The scenario by name, or as YAML in `text`. The arms in words ("A,B" for the scenario's own, "physical,rotating"), or as
    objects of policy fields; without either, the scenario's own."""

    server: int
    scenario: str = Field("", max_length=80)
    text: str = Field("", max_length=stored.MOST_BYTES)
    arms: str = Field("", max_length=400)
    a: dict[str, Any] | None = None
    b: dict[str, Any] | None = None
    pairs: int = Field(8, ge=1, le=MOST_REPETITIONS)
    scale: Literal["auto"] | float | None = Field(
        None, description=f'from {SCALE_MIN:g} to {SCALE_MAX:g}, or "auto"; without it the scenario\'s own'
    )
    share: float | None = Field(None, ge=0, lt=1, description="when the short request of warm-behind-cold is sent")
    seed: int | None = Field(None, ge=0, lt=MOST_SEED, description="of an earlier run, for the same load again")
    shards: int = Field(1, ge=1, le=MOST_SHARDS)
    order: str | None = Field(None, description=f"of the blocks: {' or '.join(ORDERS)}")
    floor: int | None = Field(None, ge=0, le=MOST_FLOOR, description="pairs with arm A on both sides that go first")
    wait: bool = Field(False, description="behind a run that has the server, which refuses a second one otherwise")
    not_before: datetime | None = Field(None, description="a moment to wait for; without an offset, of the console's time zone")

    model_config = example(**STARTED)

    @field_validator("scale", mode="before")
    @classmethod
    def _scale(cls, value: Any) -> Any:
        """One sentence in place of one for each of the types."""
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or value == "auto" or usable:
            return value
        raise ValueError("must be a number, or auto")


class ResultOut(Schema):
    """`workers.selectors.results` without timelines: docs/experiments.md says what each key is."""

    run: int
    complete_pairs: int
    verdict: str
    arms: dict[str, str]
    measures: list[dict[str, Any]]
    warnings: list[str]
    notes: list[str]

    model_config = example(**RESULT) | {"extra": "allow"}


@router.get("", response=list[RunOut], summary="Runs, the newest first")
@paginate(Pages)
def list_runs(
    request: HttpRequest,
    scenario: str = "",
    server: int | None = None,
    by: str = "",
    state: str = Query("", description="a state, or: active, broken (stopped, failed, lost)"),
) -> Shown[Run]:
    """Of servers that one may see, and those that came from files."""
    rows = run_list.find(Filters(scenario, "", by, state), access.of(request).servers())
    if state and state not in run_list.STATES:
        rows = rows.filter(state=state)
    return Shown(rows if server is None else rows.filter(server_id=server), lambda page: map(_out, page))


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


def _out(run: Run) -> Json:
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
        "verdict": "" if run.active else run_list.verdict_of(run),
    }


def _detail(run: Run) -> Json:
    same = ("order", "floor", "scale", "scale_auto", "share", "shards", "seed", "scenario_text", "stop_reason", "warnings")
    told = {name: getattr(run, name) for name in (*same, "policy_restored")}
    return _out(run) | told | {"log": selectors.log(run, LOG_LINES)}
