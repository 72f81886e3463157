"""The parts of the JSON API that need what the console's upper layers know: policies, scenarios, runs, audit.

`dashboard.api.api` is the whole of it, with what scheduler_api/api.py has.
"""

from __future__ import annotations

from dashboard.api import problems
from dashboard.api.audit import router as audit
from dashboard.api.policies import router as policies
from dashboard.api.policy_parts import router as policy_parts
from dashboard.api.presets import router as presets
from dashboard.api.runs import router as runs
from dashboard.api.samples import router as samples
from dashboard.api.scenarios import router as scenarios
from scheduler_api.api import api
from scheduler_api.api_problems import handle

__all__ = ["api"]

api.add_router("/servers", policies)
api.add_router("/servers", policy_parts)
api.add_router("/presets", presets)
api.add_router("/scenarios", scenarios)
api.add_router("/runs", runs)
api.add_router("/runs", samples)
api.add_router("/audit", audit)
handle(api, problems.HANDLERS)
