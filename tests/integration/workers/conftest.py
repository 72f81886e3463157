"""A real worker, a real broker and a real engine, sharing the tests' database file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from scheduler_api.models import Server, ServerKind
from tests.support.engine import EngineProcess, running_engine
from tests.support.valkey import ValkeyProcess
from workers.app import app
from workers.models import Run

ROOT = Path(__file__).resolve().parents[3]


def forget_broker() -> None:
    """Celery keeps connections of the broker that it met first."""
    app._pool = None
    app.amqp._producer_pool = None


@pytest.fixture(autouse=True)
def _fresh_broker() -> Iterator[None]:
    forget_broker()
    yield
    forget_broker()


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    """A cost model of a millisecond a token: small prompts take long enough to be caught at work."""
    arguments = ("--backend", "simulated", "--parallel", "3", "--no-kv-unified", "--ctx-size", "12288", "--batch-size", "64")
    with running_engine(*arguments) as process:
        yield process


class WorkerProcess:
    """The worker as the Procfile starts it, with beat inside. A start takes seconds, so tests share one until it is ended."""

    def __init__(self, folder: Path, database: str, broker: str, slots: int = 2) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SLOTBOARD_VAR_DIR": str(folder),
            "DATABASE_URL": f"sqlite:///{database}",
            "REDIS_URL": broker,
            "SLOTBOARD_CREDENTIAL_KEYS": ",".join(settings.CREDENTIAL_KEYS),  # its folder is its own, its database is not
        }
        command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "-B", "--scheduler", "celery.beat:Scheduler"]
        options = ["--without-gossip", "--without-mingle", "--concurrency", str(slots), "--loglevel", "INFO"]
        self.log = folder / "worker.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def workers(
    django_db_setup: None, valkey_process: ValkeyProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], WorkerProcess]]:
    """Gives the running worker, started anew when a test has ended it."""
    started: list[WorkerProcess] = []
    database = str(connections["default"].settings_dict["NAME"])

    def running() -> WorkerProcess:
        if not started or started[-1].process.poll() is not None:
            started.append(WorkerProcess(tmp_path_factory.mktemp("worker"), database, valkey_process.url))
            log = started[-1].log
            wait_for(lambda: " ready." in log.read_text(), 60, lambda: log.read_text())
        return started[-1]

    try:
        yield running
    finally:
        for each in started:
            each.stop()


@pytest.fixture
def worker(transactional_db: None, valkey: ValkeyProcess, workers: Callable[[], WorkerProcess]) -> Iterator[WorkerProcess]:
    started = workers()
    try:
        yield started
    finally:
        print(started.log.read_text()[-4000:])  # shown by pytest when the test fails


@pytest.fixture
def server(transactional_db: None, engine: EngineProcess) -> Server:
    return Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url=engine.url)


def wait_for(condition: Callable[[], bool], limit_s: float, describe: Callable[[], object] = lambda: "") -> float:
    """Seconds until it held; AssertionError with what `describe` tells when it never did."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit_s, f"it did not come true in {limit_s} s: {describe()}"
        time.sleep(0.02)
    return time.monotonic() - start


def fresh(run: Run) -> Run:
    run.refresh_from_db()
    return run
