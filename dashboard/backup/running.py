"""Whether anything of this installation runs, on this host or another: a database is not changed under it."""

from __future__ import annotations

from time import sleep, time

import redis
from django.db import DatabaseError, connection
from kombu.exceptions import OperationalError

from dashboard.backup import postgresql
from scheduler_api import live, processes
from scheduler_api.alerts import watchdog
from workers import broker
from workers.app import app

#: An observer says once a second that it runs: one that said so lately and says nothing more has ended.
LATELY_S = 5.0
LISTEN_S = 2.5
WORKERS_ANSWER_S = 1.0


def found() -> list[str]:
    """In words, what runs. Processes of this host hold a lock; those of others are known by the observer's beat, by workers that
    answer over the broker, and by their connections to PostgreSQL. Without Valkey nothing of other hosts can be at work."""
    here = processes.running()
    return here or [*_observer(), *_workers(), *_connections()]


def _observer() -> list[str]:
    silent = watchdog.silence(time())
    if silent is None or silent > LATELY_S:
        return []
    before = _beat()
    sleep(LISTEN_S)
    return ["an observer on another host"] if _beat() != before else []


def _beat() -> object:
    try:
        return live.client().get(live.HEARTBEAT_KEY)
    except redis.RedisError:
        return None


def _workers() -> list[str]:
    if not broker.reachable():
        return []
    try:
        answers = app.control.inspect(timeout=WORKERS_ANSWER_S).ping()
    except (OperationalError, redis.RedisError, OSError):
        return []
    return [f"the worker {name}" for name in sorted(answers or {})]


def _connections() -> list[str]:
    if connection.vendor != "postgresql":
        return []
    try:
        count = postgresql.others()
    except DatabaseError:
        return []
    return [f"{count} other connection{'s' if count > 1 else ''} to the database"] if count else []
