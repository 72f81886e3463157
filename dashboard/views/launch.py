"""Starting an experiment: the form, what it says before anything is sent, and a run's load again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard import arms, command_line, experiment_form, load_plan, roles
from dashboard import targets as offered
from dashboard.experiment_form import Asked
from dashboard.roles import Role, at_least
from dashboard.targets import Target
from dashboard.views.results import Request, run_or_404
from dashboard.views.scenarios import yaml_file
from workers import experiments as services
from workers import preflight, stored
from workers.analysis.order import ABBA, steps
from workers.errors import ExperimentRefused
from workers.load.dialects import Lack
from workers.load.planned import Plan
from workers.models import Run
from workers.scenarios import Scenario, ScenarioError, library
from workers.scenarios.streams import LoadScenario

MOST_STEPS = 32


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.OPERATOR)
def experiment_new(request: Request) -> HttpResponse:
    asked, listed, chosen = _read(request)
    error = ""
    if request.method == "POST" and "draw" not in request.POST:
        error = " ".join(asked.problems)
        if not error:
            try:
                return redirect("run", pk=_start(request, asked, chosen).pk)
            except ExperimentRefused as refused:
                error = refused.text
    context = {
        "targets": listed,
        "chosen": chosen.server if chosen and not chosen.why_not else None,
        "target": chosen,
        "can_start": chosen is not None and not chosen.why_not and asked.scenario is not None,
        "arms": [_arm(arm, asked, chosen) for arm in ("A", "B")],
        "asked": asked,
        "values": asked.values,
        "entries": stored.entries(),
        "run_choice": experiment_form.run_choice(asked.copied),
        "error": error,
        **_plan(asked, chosen),
    }
    template = "experiments/new.html#plan" if request.htmx else "experiments/new.html"
    return render(request, template, context, status=409 if error else 200)


@require_safe
@at_least(Role.OPERATOR)
def experiment_check(request: Request) -> HttpResponse:
    """What the target cannot do of what the form asks: asked of the server itself, by the check that a start makes."""
    asked, _, chosen = _read(request)
    context: dict[str, Any] = {"target": chosen, "lacks": None, "checked": False}
    if chosen is not None and asked.scenario is not None:
        try:
            lacks = _lacks(asked, chosen)
        except ExperimentRefused as refused:
            lacks = [Lack(refused.text, True)]
        context |= {"lacks": lacks, "checked": True, "fatal": any(lack.fatal for lack in lacks)}
    return render(request, "experiments/_check.html", context)


@require_safe
def run_scenario(request: Request, pk: int) -> HttpResponse:
    """The scenario as the run had it."""
    run = run_or_404(pk)
    return yaml_file(run.scenario_text or library.text_of(run.scenario), f"run-{pk}.yaml")


@require_POST
@at_least(Role.OPERATOR)
def run_again(request: Request, pk: int) -> HttpResponse:
    """The same experiment once more, of the same load or of one drawn anew; it waits when its server is taken."""
    before = run_or_404(pk)
    if before.server_id is None:
        messages.error(request, "This run came from a file, so it has no server here. Edit it and choose one.")
        return redirect("run", pk=pk)
    try:
        started = services.start_run(
            scenario=before.scenario,
            text=before.scenario_text,
            server=before.server,
            policy_a=before.policy_a,
            policy_b=before.policy_b,
            repetitions=before.repetitions,
            scale="auto" if before.scale_auto else before.scale,
            share=None if before.scenario_text else before.share,
            shards=before.shards,
            order=before.order,
            floor=before.floor,
            seed=before.seed if request.POST.get("seed") == "same" else None,
            wait=True,
            by=request.user,
        )
    except ExperimentRefused as refused:
        messages.error(request, f"Not started. {refused.text}")
        return redirect("run", pk=pk)
    return redirect("run", pk=started.pk)


def _read(request: Request) -> tuple[Asked, list[Target], Target | None]:
    sent = (request.POST if request.method == "POST" else request.GET).dict()
    number = str(sent.get("from", ""))
    asked = experiment_form.read(sent, run_or_404(int(number)) if number.isdecimal() else None)
    listed = offered.targets(roles.visible(request.user, Role.OPERATOR), asked.scenario)
    return asked, listed, offered.choose(listed, asked.server)


def _arm(letter: str, asked: Asked, chosen: Target | None) -> dict[str, Any]:
    """Numbers are folded away until one is set: most comparisons choose among values."""
    choices = arms.choices(letter, _fields(chosen), asked.sent)
    numbers = [choice for choice in choices if not choice.values]
    return {"letter": letter, "choices": choices, "numbers": len(numbers), "open": any(choice.chosen for choice in numbers)}


def _fields(chosen: Target | None) -> dict[str, Any]:
    return chosen.fields if chosen and chosen.switches else {}


def _policies(asked: Asked, chosen: Target | None) -> dict[str, dict[str, Any]]:
    """Raises ExperimentRefused for a number that a field does not allow."""
    return {arm: arms.asked(arm, _fields(chosen), asked.sent) for arm in ("A", "B")}


def _start(request: Request, asked: Asked, chosen: Target | None) -> Run:
    if chosen is None:
        raise ExperimentRefused("No server is registered on which you may run experiments.")
    if asked.server is not None and asked.server != chosen.server.pk:
        raise ExperimentRefused("The chosen server is not registered any more. Choose another one.")
    roles.require(request.user, Role.OPERATOR, chosen.server)
    policies = _policies(asked, chosen)
    streams: dict[str, Any] = {"text": asked.entry.text, "shards": asked.shards}
    return services.start_run(
        scenario=asked.entry.name,
        server=chosen.server,
        policy_a=policies["A"],
        policy_b=policies["B"],
        repetitions=asked.repetitions,
        scale=asked.scale,
        share=asked.share if asked.is_pair else None,
        seed=asked.seed,
        order=asked.order,
        floor=asked.floor,
        wait=asked.wait,
        not_before=asked.not_before,
        by=request.user,
        **({} if asked.is_pair else streams),
    )


def _lacks(asked: Asked, chosen: Target) -> list[Lack]:
    policies = _policies(asked, chosen)
    scenario = asked.scenario
    if isinstance(scenario, Scenario):
        try:
            sizes = scenario.sizes(1.0 if asked.scale == "auto" else asked.scale)
        except ScenarioError as error:
            raise ExperimentRefused(str(error)) from error
        return preflight.of_pair(chosen.server, scenario, sizes, policies)
    assert isinstance(scenario, LoadScenario)
    plan = load_plan.of_load(scenario, chosen, asked.scale, asked.repetitions, asked.seed).plan
    return preflight.of_load(chosen.server, scenario, plan or Plan((), ()), policies, scale_known=plan is not None)


def _order(asked: Asked, chosen: Target | None) -> dict[str, Any]:
    """The blocks as they come; of a random order only with a seed, since it is drawn from it."""
    try:
        policies = _policies(asked, chosen)
    except ExperimentRefused:
        policies = {"A": {}, "B": {"": ""}}
    order, floor = asked.blocks(equal_arms=policies["A"] == policies["B"])
    known = order == ABBA or asked.seed is not None
    found = [step for step in steps(asked.repetitions, order=order, seed=asked.seed or 0, floor=floor) if known or step.floor]
    return {
        "steps": found[:MOST_STEPS],
        "more": max(0, len(found) - MOST_STEPS),
        "floor": floor,
        "drawn_order": "" if known else f"then {asked.repetitions} pairs in an order drawn from the seed",
    }


def _plan(asked: Asked, chosen: Target | None) -> Mapping[str, Any]:
    """The drawing of what would be sent, and the command that sends the same."""
    context: dict[str, Any] = {"plan": None, "load": None, "command": "", **_order(asked, chosen)}
    if isinstance(asked.scenario, LoadScenario):
        pairs = asked.repetitions + int(context["floor"])
        context["load"] = load_plan.of_load(asked.scenario, chosen, asked.scale, pairs, asked.seed)
    elif asked.scenario is not None:
        context["plan"], context["drawing"] = load_plan.of_pair(asked, chosen, int(context["floor"]))
    try:
        policies = _policies(asked, chosen)
    except ExperimentRefused as refused:
        return context | {"refused": refused.text}
    if chosen is not None and not asked.problems:
        context["command"] = command_line.command(
            f"run-{asked.copied.pk}.yaml" if asked.of_run and asked.copied else asked.entry.name,
            chosen.server.name,
            {"a": policies["A"], "b": policies["B"]},
            asked.repetitions,
            asked.scale,
            share=asked.share if asked.is_pair else None,
            seed=asked.seed,
            shards=asked.shards,
            order=asked.order,
            floor=asked.floor,
            wait=asked.wait,
            not_before=asked.not_before,
        )
    return context
