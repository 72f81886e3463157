"""A real engine process for tests: on a free port, waited for, and ended by its id.

with running_engine("--parallel", "2", "--ctx-size", "4096") as engine:
    engine.complete(prompt="hello", n_predict=4)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx2

ROOT = Path(__file__).resolve().parents[2]
_URL = re.compile(r"http://\S+?:\d+")
# Without what the surroundings may say about servers; one thread, since a test machine's cores are rarely free.
_CLEAN = (
    "LLAMA_",
    "BACKEND",
    "PREFILL_",
    "ROTATION_START",
    "PHASE",
    "DECODE_SHARE",
    "BARRIER_",
    "QUEUE_",
    "DRAIN_",
    "DRAFT_",
    "SPECULATIVE",
    "LOG_FORMAT",
)


class EngineProcess:
    """One started process. `url` is known as soon as it listens, which is before its model is loaded."""

    def __init__(self, args: tuple[str, ...], env: Mapping[str, str], output: IO[bytes]) -> None:
        self._output = output
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_CLEAN)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", "--port", "0", *args],
            cwd=ROOT,
            env={**clean, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        self.url = ""
        self.client = httpx2.Client(timeout=60)

    def output(self) -> str:
        return Path(self._output.name).read_text(encoding="utf-8", errors="replace")

    def wait_ready(self, timeout: float = 90) -> None:
        """Until /health says ok; raises RuntimeError with the process's output otherwise."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.process.poll() is None:
            if not self.url and (found := _URL.search(self.output())):
                self.url = found.group()
                self.client.base_url = httpx2.URL(self.url)
            if self.url and self._healthy():
                return
            time.sleep(0.05)
        raise RuntimeError(f"The engine did not become ready. It said:\n{self.output()}")

    def _healthy(self) -> bool:
        try:
            return self.client.get("/health").status_code == 200
        except httpx2.TransportError:
            return False

    def stop(self, timeout: float = 10) -> int:
        """SIGTERM, then SIGKILL after `timeout`; the exit code."""
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    # -- what tests ask of it -----------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        response = self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def complete(self, **body: Any) -> dict[str, Any]:
        response = self.client.post("/completion", json={"temperature": 0, **body})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    @contextmanager
    def stream(self, **body: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a streamed completion; leaving the block closes the connection."""
        with self.client.stream("POST", "/completion", json={"temperature": 0, "stream": True, **body}) as response:
            if response.status_code != 200:
                raise AssertionError(response.read().decode())
            yield sse_data(response.iter_lines())

    def set_policy(self, **changes: Any) -> dict[str, Any]:
        version = self.get("/scheduler")["policy"]["version"]
        response = self.client.patch("/scheduler/policy", json={"expected_version": version, "set": changes})
        assert response.status_code == 200, response.text
        policy: dict[str, Any] = response.json()
        return policy

    def wait_until(self, condition: Callable[[list[dict[str, Any]]], bool], timeout: float = 10) -> list[dict[str, Any]]:
        """Polls /slots until the condition holds for them; AssertionError with the last ones otherwise."""
        deadline = time.monotonic() + timeout
        while True:
            slots: list[dict[str, Any]] = self.get("/slots")
            if condition(slots):
                return slots
            assert time.monotonic() < deadline, f"it never came true; the slots at last: {slots}"
            time.sleep(0.01)


def sse_data(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON of each data line, without the end mark of OpenAI streams."""
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


@contextmanager
def running_engine(*args: str, env: Mapping[str, str] | None = None, ready: bool = True) -> Iterator[EngineProcess]:
    """An engine that serves the tiny model. Its output is printed when the block fails."""
    with tempfile.NamedTemporaryFile(prefix="engine-", suffix=".log") as output:
        engine = EngineProcess(("--threads", "1", *args), env or {}, output)
        try:
            if ready:
                engine.wait_ready()
            yield engine
        except BaseException:
            print(engine.output())
            raise
        finally:
            engine.stop()
