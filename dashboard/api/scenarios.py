"""The JSON API of scenarios: the library and the operators' own, each with its text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.responses import Status

from scheduler_api import access
from scheduler_api.access import Role
from scheduler_api.api_auth import require_anywhere
from scheduler_api.api_paging import Pages
from scheduler_api.api_problems import Fault
from scheduler_api.api_schema import example
from workers import gating, stored
from workers.models import Run, StoredScenario
from workers.scenarios import ScenarioError
from workers.scenarios.streams import LoadScenario
from workers.stored import Entry

type Json = dict[str, Any]

router = Router(tags=["scenarios"])

TEXT = "name: my-chat\nversion: 1\ntitle: My chat\nsummary: What it shows.\nwritten_for: 4000\nstreams: …\n"
LISTED: Json = {
    "name": "my-chat",
    "own": True,
    "title": "My chat",
    "summary": "What it shows.",
    "version": 1,
    "tags": ["chat"],
    "streams": ["chat"],
    "fault": "",
    "copied_from": "mixed-chat",
    "changed_by": "mira",
    "changed_at": "2026-05-01T09:00:00Z",
    "last_run": 12,
}


class ScenarioOut(Schema):
    """`own`: an operator's, kept here; else of the library. `fault`: why the text is no scenario any more; then version and the
    like are not known. `last_run`: the newest run of it on a server that one may see."""

    name: str
    own: bool
    title: str
    summary: str
    version: int | None
    tags: list[str]
    streams: list[str]
    fault: str
    copied_from: str
    changed_by: str
    changed_at: datetime | None
    last_run: int | None

    model_config = example(**LISTED)


class ScenarioDetail(ScenarioOut):
    """With its YAML, and the two arms that it suggests."""

    text: str
    arms: dict[str, dict[str, Any]]

    model_config = example(**LISTED, text=TEXT, arms={"A": {"prefill_order": "physical"}, "B": {"prefill_order": "fair"}})


class ScenarioText(Schema):
    text: str = Field(..., max_length=stored.MOST_BYTES, description="YAML, docs/experiments.md")

    model_config = example(text=TEXT)


class CheckIn(ScenarioText):
    """`own`: the name of the scenario whose text this is to become, so that its own name counts as free."""

    own: str = ""

    model_config = example(text=TEXT, own="my-chat")


class CheckOut(Schema):
    ok: bool
    errors: list[Fault]

    model_config = example(ok=False, errors=[{"field": "streams[0].output", "text": "must be greater than 0, not -1", "line": 9}])


@router.get("", response=list[ScenarioOut], summary="All scenarios, the operators' own first")
@paginate(Pages)
def list_scenarios(request: HttpRequest, tag: str = "", own: bool | None = None) -> list[Json]:
    last = stored.last_runs(access.of(request).servers())
    found = [_out(entry, last) for entry in stored.entries() if own is None or (entry.own is not None) == own]
    return [each for each in found if not tag or tag in each["tags"]]


@router.post("/check", response=CheckOut, summary="Check a text")
def check_scenario(request: HttpRequest, body: CheckIn) -> Json:
    """What is wrong with it, with lines and fields. Nothing is kept."""
    require_anywhere(request, Role.OPERATOR)
    was = StoredScenario.objects.filter(name=body.own).first() if body.own else None
    try:
        stored.checked(body.text, was)
    except ScenarioError as error:
        faults = [{"field": each.field, "text": each.text, "line": each.line} for each in error.faults]
        return {"ok": False, "errors": faults or [{"field": "", "text": str(error), "line": None}]}
    return {"ok": True, "errors": []}


@router.post("", response={201: ScenarioDetail}, summary="Keep a new scenario")
def add_scenario(request: HttpRequest, body: ScenarioText) -> Status[Json]:
    user = require_anywhere(request, Role.OPERATOR)
    return Status(201, _detail(request, stored.save(body.text, user).name))


@router.get("/{slug:name}", response=ScenarioDetail, summary="A scenario with its text")
def scenario_detail(request: HttpRequest, name: str) -> Json:
    return _detail(request, name)


@router.put("/{slug:name}", response=ScenarioDetail, summary="Give one's own scenario another text")
def change_scenario(request: HttpRequest, name: str, body: ScenarioText) -> Json:
    """The text may rename it. Runs keep the text that they were started with."""
    user = require_anywhere(request, Role.OPERATOR)
    return _detail(request, stored.save(body.text, user, _own(name)).name)


@router.post("/{slug:name}/copy", response={201: ScenarioDetail}, summary="Copy a scenario")
def copy_scenario(request: HttpRequest, name: str) -> Status[Json]:
    """Under the first name that is free: mixed-chat-2, and so on."""
    user = require_anywhere(request, Role.OPERATOR)
    return Status(201, _detail(request, stored.copy(_entry(name).name, user).name))


@router.delete("/{slug:name}", response={204: None}, summary="Delete one's own scenario")
def delete_scenario(request: HttpRequest, name: str) -> Status[None]:
    user = require_anywhere(request, Role.OPERATOR)
    stored.delete(_own(name), user)
    return Status(204, None)


def _entry(name: str) -> Entry:
    try:
        return stored.entry(name)
    except ScenarioError as error:
        raise HttpError(404, str(error)) from None


def _own(name: str) -> StoredScenario:
    found = _entry(name).own
    if found is None:
        raise HttpError(404, f"{name} is the library's; copy it to edit the copy.")
    return found


def _detail(request: HttpRequest, name: str) -> Json:
    entry = _entry(name)
    arms = dict(zip("AB", gating.own_arms(entry.scenario), strict=True)) if entry.scenario is not None else {}
    return _out(entry, stored.last_runs(access.of(request).servers())) | {"text": entry.text, "arms": arms}


def _out(entry: Entry, last: dict[str, Run]) -> Json:
    scenario, own, run = entry.scenario, entry.own, last.get(entry.name)
    streams = [stream.name for stream in scenario.streams] if isinstance(scenario, LoadScenario) else ["cold", "short"]
    return {
        "name": entry.name,
        "own": own is not None,
        "title": scenario.title if scenario is not None else own.title if own is not None else "",
        "summary": scenario.summary if scenario is not None else "",
        "version": scenario.version if scenario is not None else None,
        "tags": list(scenario.tags) if scenario is not None else [],
        "streams": streams if scenario is not None else [],
        "fault": entry.fault,
        "copied_from": own.copied_from if own is not None else "",
        "changed_by": own.changed_by.get_username() if own is not None and own.changed_by is not None else "",
        "changed_at": own.changed_at if own is not None else None,
        "last_run": run.pk if run is not None else None,
    }
