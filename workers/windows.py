"""Policies by the clock, fired where an edge is due. A server that a run measures is left alone, and that is said."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_init

from scheduler_api import audit, processes
from scheduler_api.models import Server
from scheduler_api.policies import scheduling
from workers import selectors
from workers.app import app


@app.task(name="workers.windows")  # type: ignore[untyped-decorator]
def fire() -> int:
    """How many edges were seen to."""
    with audit.acting(audit.Origin(through="worker")):
        return len(scheduling.fire_due(busy))


@worker_init.connect  # type: ignore[untyped-decorator]
def write_as_worker(**_: Any) -> None:
    """What this process writes without a request is told apart in the audit trail."""
    audit.this_process("worker")
    processes.hold("worker")


def busy(server: Server) -> str:
    run = selectors.active_run(server)
    return "" if run is None else f"Run {run.pk} measures this server; its policies are the run's until it ends."
