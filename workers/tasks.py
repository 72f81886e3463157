"""Celery's entry points; what they do lies in steps.py and reaping.py."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from celery.signals import worker_ready, worker_shutting_down
from django.db import close_old_connections
from kombu.exceptions import OperationalError

from workers import alerting, reaping, retention, shardrun, steps
from workers.app import app
from workers.experiments import RUN_TASK
from workers.models import Run, RunState
from workers.sharding import SHARD_TASK

__all__ = ["alerting"]  # its tasks are registered by the import


@app.task(name=RUN_TASK, bind=True, acks_late=False)  # type: ignore[untyped-decorator]
def run_experiment(task: Any, run_id: int) -> bool:
    return steps.conduct(run_id, f"{task.request.hostname or socket.gethostname()} pid {os.getpid()}")


@app.task(name=SHARD_TASK, bind=True, acks_late=False)  # type: ignore[untyped-decorator]
def run_shard(task: Any, shard_id: int) -> bool:
    return shardrun.serve(shard_id, f"{task.request.hostname or socket.gethostname()} pid {os.getpid()}")


@app.task(name="workers.reap")  # type: ignore[untyped-decorator]
def reap() -> list[int]:
    return reaping.reap()


@app.task(name="workers.drop_old")  # type: ignore[untyped-decorator]
def drop_old() -> dict[str, int]:
    return retention.drop_old()


@worker_ready.connect  # type: ignore[untyped-decorator]
def reap_at_start(**_: object) -> None:
    with contextlib.suppress(OperationalError):  # a worker that is ended while it starts has no broker any more; beat asks again
        reap.apply_async(expires=30, retry=False)


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def stop_own_runs(sender: object = None, **_: object) -> None:
    """A worker that is asked to end stops its runs like an operator would, so that slots and policy are left clean."""
    own = f"{sender} pid "
    running = Run.objects.filter(state=RunState.RUNNING)
    for held, reason in (
        (running.filter(worker__startswith=own), "the worker was shut down"),
        (running.filter(parts__worker__startswith=own), "the worker of a shard was shut down"),
    ):
        held.update(state=RunState.STOPPING, stop_requested=True, stop_reason=reason)
    close_old_connections()
