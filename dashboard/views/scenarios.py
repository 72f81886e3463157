"""Scenarios: the library and the operators' own, each with its load drawn; a copy edited by a form or as text."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard import load_plan, present, roles, run_list, run_page, scenario_form
from dashboard.roles import Role, at_least
from dashboard.views.results import Request
from workers import stored
from workers.models import StoredScenario
from workers.scenarios import Scenario, ScenarioError
from workers.scenarios.editing import change
from workers.scenarios.reading import parse, read
from workers.scenarios.schema import Fault
from workers.scenarios.streams import LoadScenario
from workers.stored import Entry

NEW = """name: my-scenario
version: 1
title: My scenario
summary: What it shows.
written_for: 4000
streams:
  - name: chat
    arrivals: {kind: poisson, rate: 1, for_s: 20}
    prompt: {tokens: 400}
    output: 32
"""


@require_safe
def scenarios(request: Request) -> HttpResponse:
    wanted = request.GET.get("tag", "")
    last = stored.last_runs(roles.visible(request.user))
    entries = stored.entries()
    shown = [_row(entry, last.get(entry.name)) for entry in entries if not wanted or wanted in _tags(entry)]
    context = {
        "own": [row for row in shown if row["entry"].own],
        "library": [row for row in shown if not row["entry"].own],
        "tags": sorted({tag for entry in entries for tag in _tags(entry)}),
        "tag": wanted,
        "may_edit": roles.may(request.user, Role.OPERATOR),
    }
    return render(request, "scenarios/list.html", context)


def _tags(entry: Entry) -> list[str]:
    return list(entry.scenario.tags) if entry.scenario else []


def _row(entry: Entry, run: Any) -> dict[str, Any]:
    scenario = entry.scenario
    streams = [stream.name for stream in scenario.streams] if isinstance(scenario, LoadScenario) else ["cold", "short"]
    row: dict[str, Any] = {"entry": entry, "streams": streams if scenario else [], "tags": _tags(entry), "run": run}
    if run is not None:
        row |= {"verdict": present.unbroken(run_list.verdict_of(run)), "state": run_page.state_of(run)}
    return row


@require_safe
def scenario(request: Request, name: str) -> HttpResponse:
    entry = _entry(name)
    last = stored.last_runs(roles.visible(request.user)).get(name)
    context = {
        **_row(entry, last),
        "scenario": entry.scenario,
        "load": _drawn(entry.scenario),
        "lines": entry.text.splitlines(),
        "may_edit": roles.may(request.user, Role.OPERATOR),
        "copies": isinstance(entry.scenario, LoadScenario),
    }
    return render(request, "scenarios/one.html", context)


def _entry(name: str) -> Entry:
    try:
        return stored.entry(name)
    except ScenarioError as error:
        raise Http404(str(error)) from None


def _own(name: str) -> StoredScenario:
    found = _entry(name).own
    if found is None:
        raise Http404(f"{name} is the library's; copy it to edit the copy.")
    return found


def _drawn(scenario: Scenario | LoadScenario | None) -> load_plan.LoadPlan | None:
    return load_plan.of_load(scenario, None, 1.0, 1) if isinstance(scenario, LoadScenario) else None


@require_safe
def download(request: Request, name: str) -> HttpResponse:
    return yaml_file(_entry(name).text, f"{name}.yaml")


def yaml_file(text: str, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)


@require_POST
@at_least(Role.OPERATOR)
def scenario_copy(request: Request, name: str) -> HttpResponse:
    try:
        made = stored.copy(_entry(name).name, request.user)
    except ScenarioError as error:
        messages.error(request, str(error))
        return redirect("scenario", name=name)
    return redirect("scenario-edit", name=made.name)


@require_POST
@at_least(Role.OPERATOR)
def scenario_delete(request: Request, name: str) -> HttpResponse:
    stored.delete(_own(name), request.user)
    messages.success(request, f"{name} is deleted. Runs of it keep the text that they were started with.")
    return redirect("scenarios")


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.OPERATOR)
def scenario_add(request: Request) -> HttpResponse:
    """A new one from an uploaded file or from typed text."""
    file = request.FILES.get("file")
    if isinstance(file, UploadedFile):
        try:
            return redirect("scenario", name=stored.save(_read(file), request.user).name)
        except ScenarioError as error:
            text = "" if file.size and file.size > stored.MOST_BYTES else _lossy(file)
            return _editor(request, None, text or NEW, error, "yaml")
    return _edit(request, None, NEW)


def _read(file: UploadedFile[Any]) -> str:
    """Raises ScenarioError."""
    if (file.size or 0) > stored.MOST_BYTES:
        raise ScenarioError(f"The file is larger than {stored.MOST_BYTES >> 10} KB.")
    try:
        return str(file.read().decode("utf-8"))
    except UnicodeDecodeError:
        raise ScenarioError("The file is not UTF-8 text.") from None


def _lossy(file: UploadedFile[Any]) -> str:
    file.seek(0)
    return str(file.read().decode("utf-8", errors="replace"))


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.OPERATOR)
def scenario_edit(request: Request, name: str) -> HttpResponse:
    own = _own(name)
    return _edit(request, own, own.text)


def _edit(request: Request, own: StoredScenario | None, text: str) -> HttpResponse:
    """Saves with `save`; any other button shows the text, with what the form changed in it, in the view that it names."""
    if request.method != "POST":
        return _editor(request, own, text, None, request.GET.get("as", "form" if own else "yaml"))
    text, error = _posted(request, own)
    if "save" in request.POST and error is None:
        try:
            return redirect("scenario", name=stored.save(text, request.user, own).name)
        except ScenarioError as failure:
            error = failure
    mode = request.POST.get("as") or request.POST.get("mode", "yaml")
    return _editor(request, own, text, error, mode, tried="save" in request.POST)


def _posted(request: Request, own: StoredScenario | None) -> tuple[str, ScenarioError | None]:
    """The text with the form's changes, and what is wrong with it."""
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if len(text.encode()) > stored.MOST_BYTES:
        return text[: stored.MOST_BYTES], ScenarioError(f"The text is larger than {stored.MOST_BYTES >> 10} KB.")
    try:
        parse(text, "text")
        text = change(text, scenario_form.changes(request.POST.dict()))
        stored.checked(text, own)
    except ScenarioError as error:
        return text, error
    return text, None


@require_POST
@at_least(Role.OPERATOR)
def scenario_check(request: Request) -> HttpResponse:
    """What is wrong with the text as typed, and its load drawn; nothing is kept."""
    own = StoredScenario.objects.filter(name=request.POST.get("own", "")).first()
    text, error = _posted(request, own)
    return render(request, "scenarios/edit.html#checked", _checked(text, error))


def _checked(text: str, error: ScenarioError | None) -> dict[str, Any]:
    faults = error.faults or (Fault(1, "", str(error)),) if error else ()
    load = _drawn(read(text)) if error is None else None
    told = [{"line": each.line, "field": each.field, "text": each.text.removeprefix(each.field).strip()} for each in faults]
    return {"faults": faults, "told": told, "load": load, "lines": text.count("\n") + 1}


def _editor(
    request: Request, own: StoredScenario | None, text: str, error: ScenarioError | None, mode: str, *, tried: bool = False
) -> HttpResponse:
    if error is None:
        try:
            stored.checked(text, own)
        except ScenarioError as failure:
            error = failure
    context = {
        **_checked(text, error),
        "own": own,
        "text": text,
        "mode": "form",
        "tried": tried,
        "most": stored.MOST_BYTES,
        "most_kb": stored.MOST_BYTES >> 10,
    }
    try:
        parse(text, "text")
        context["head"], context["stream_fields"] = scenario_form.fields(text, context["faults"])
    except ScenarioError:
        mode = "yaml"  # no form without a text that can be read
    context["mode"] = "form" if mode == "form" else "yaml"
    return render(request, "scenarios/edit.html", context, status=422 if tried and error else 200)
