"""Starting an experiment: the form, and what it says before anything is sent."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from dashboard import arms, experiment_form, roles
from dashboard.roles import Role, at_least
from dashboard.views.experiments import Request, run_or_404
from workers import experiments as services
from workers.errors import ExperimentRefused
from workers.models import Run


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.OPERATOR)
def experiment_new(request: Request) -> HttpResponse:
    asked = experiment_form.read((request.POST if request.method == "POST" else request.GET).dict(), _copied(request))
    targets = experiment_form.targets(roles.visible(request.user, Role.OPERATOR))
    chosen = experiment_form.choose(targets, asked)
    error = ""
    if request.method == "POST" and "draw" not in request.POST:
        error = " ".join(asked.problems)
        if not error:
            try:
                return redirect("run", pk=_start(request, asked, chosen).pk)
            except ExperimentRefused as refused:
                error = refused.text
    plan, drawing = experiment_form.drawing_of(asked, chosen)
    fields = chosen.fields if chosen else {}
    context = {
        "targets": targets,
        "chosen": chosen.server if chosen and not chosen.why_not else None,
        "can_start": chosen is not None and not chosen.why_not,
        "arms": [{"letter": arm, "choices": arms.choices(arm, fields, asked.sent)} for arm in ("A", "B")],
        "values": asked.values,
        "plan": plan,
        "drawing": drawing,
        "error": error,
    }
    template = "experiments/new.html#plan" if request.htmx else "experiments/new.html"
    return render(request, template, context, status=409 if error else 200)


def _copied(request: Request) -> Run | None:
    number = request.GET.get("from", "")
    if not number.isdigit():
        return None
    run = run_or_404(int(number))
    if not roles.may(request.user, Role.VIEWER, run.server):
        raise Http404(f"There is no run {number}.")
    return run


def _start(request: Request, asked: experiment_form.Asked, chosen: experiment_form.Target | None) -> Run:
    if chosen is None:
        raise ExperimentRefused("No server is registered. Add one whose policies can be switched.")
    if asked.server is not None and asked.server != chosen.server.pk:
        raise ExperimentRefused("The chosen server is not registered any more. Choose another one.")
    return services.start_run(
        scenario=experiment_form.SCENARIO,
        server=chosen.server,
        policy_a=arms.asked("A", chosen.fields, asked.sent),
        policy_b=arms.asked("B", chosen.fields, asked.sent),
        repetitions=asked.repetitions,
        scale=asked.scale,
        share=asked.share,
        by=request.user,
    )
