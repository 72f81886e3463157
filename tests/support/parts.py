"""The product as `make run` starts it, but each process by itself: a test may kill one, or all but one, and start it again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from honcho.environ import parse_procfile

from tests.support.requests import DIRECT
from tests.support.stack import ROOT, Stack, free_port, run_environment

CONSOLE = ("observer", "worker", "upkeep", "web")
#: What `make run` works out and prepares before it starts anything.
_PREPARE = "import json; from tools import run; env = run.environment(); run.prepare(env); print('\\n' + json.dumps(env))"


class Parts:
    """`web` and `engine` are addresses. Output of all processes goes to one file."""

    def __init__(self, var: Path, env: dict[str, str]) -> None:
        self.env, self.log_path = env, var / "parts.log"
        self.web, self.engine = f"http://127.0.0.1:{env['PORT']}", f"http://127.0.0.1:{env['ENGINE_PORT']}"
        self._commands = parse_procfile((ROOT / "Procfile").read_text()).processes
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        with self.log_path.open("ab") as log:
            for name in names:
                command = ["sh", "-c", self._commands[name]]
                self._running[name] = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log)

    def kill(self, *names: str, how: signal.Signals = signal.SIGKILL) -> None:
        for name in names:
            self._running[name].send_signal(how)
        for name in names:
            self._running.pop(name).wait(15)

    def answers(self, url: str) -> bool:
        try:
            with DIRECT.open(url, timeout=2):
                return True
        except OSError:
            return False

    def wait_for(self, url: str, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not self.answers(url):
            assert time.monotonic() < deadline, f"{url} does not answer:\n{self.log()}"
            time.sleep(0.05)

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", *words]
        return subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=60, check=False)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")[-6000:]

    def end(self) -> None:
        for name in [*self._running]:
            self.kill(name)


def prepared(var: Path, env: dict[str, str]) -> Parts:
    """Settings, database and static files as `make run` makes them; nothing is started."""
    command = [sys.executable, "-c", _PREPARE]
    made = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=True)
    return Parts(var, json.loads(made.stdout.splitlines()[-1]))


@contextmanager
def parts(var: Path, like: Stack, **extra: str) -> Iterator[Parts]:
    """All of them, on ports and with a database of their own; the model and the static files are those of a stack that runs."""
    shutil.copytree(like.var / "static", var / "static")
    shutil.copy(like.var / "static.stamp", var)
    model = like.var / "models" / "tiny.gguf"
    ports = {"PORT": str(free_port()), "ENGINE_PORT": str(free_port()), "MODEL": str(model)}
    found = prepared(var, run_environment(var, **ports, **extra))
    try:
        found.start("valkey", "engine", *CONSOLE)
        found.wait_for(f"{found.engine}/health")
        found.wait_for(f"{found.web}/health/")
        yield found
    finally:
        found.end()
