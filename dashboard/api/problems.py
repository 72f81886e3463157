"""Refusals of the upper layers as problems."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from scheduler_api.api_problems import Handlers, answer
from scheduler_api.policies.values import PolicyFileRefused
from workers.errors import ExperimentRefused
from workers.gating import ArmFault
from workers.scenarios import ScenarioError


def _experiment(request: HttpRequest, error: ExperimentRefused) -> HttpResponse:
    return answer(409, error.text, "conflict")


def _arms(request: HttpRequest, error: ArmFault) -> HttpResponse:
    return answer(422, str(error), "invalid", field="arms", errors=[{"field": "arms", "text": str(error)}])


def _scenario(request: HttpRequest, error: ScenarioError) -> HttpResponse:
    faults = [{"field": fault.field, "text": fault.text, "line": fault.line} for fault in error.faults]
    return answer(422, str(error), "invalid", field="text", errors=faults)


def _policy_file(request: HttpRequest, error: PolicyFileRefused) -> HttpResponse:
    return answer(422, error.text, "invalid")


HANDLERS: Handlers = {
    ExperimentRefused: _experiment,
    ArmFault: _arms,
    ScenarioError: _scenario,
    PolicyFileRefused: _policy_file,
}
