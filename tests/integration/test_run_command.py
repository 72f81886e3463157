"""`make run` as an operator meets it: clear refusals, a quick second start, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stack import ROOT, get, pid_of, processes_of, run_environment, start_stack, valkey_of


def refused(tmp_path: Path, **extra: str) -> str:
    """The one sentence on stderr of a start that must not happen."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.run"],
        cwd=ROOT,
        env=run_environment(tmp_path, **extra),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in refused(tmp_path, PORT=port)
        assert "ENGINE_PORT=" in refused(tmp_path, ENGINE_PORT=port, PORT="1234")


def test_a_bad_model_path_is_named(tmp_path: Path) -> None:
    assert "is not a file" in refused(tmp_path, MODEL=str(tmp_path / "none.gguf"), PORT="1234", ENGINE_PORT="1235")


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model")
    assert "is not a GGUF file" in refused(tmp_path, MODEL=str(path), PORT="1234", ENGINE_PORT="1235")


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    assert "BACKEND=cuda is not known" in refused(tmp_path, BACKEND="cuda")


def test_bootstrap_without_a_python_says_so(tmp_path: Path) -> None:
    for name in ("tools", "requirements.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = tmp_path / "bootstrap.sh"
    script.write_text((ROOT / "tools/bootstrap.sh").read_text().replace('cd "$(dirname "$0")/.."', f'cd "{tmp_path}"'))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "cksum", "cut", "cat", "rm"):
        (tools / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    done = subprocess.run(
        ["sh", str(script)],
        env={"PATH": str(tools), "HOME": str(tmp_path), "SEARCH_ELSEWHERE": "no"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "slotboard: no Python 3.12 or newer was found; install one (or set PYTHON=/path/to/python3.13) and try again."
    )


def told_to_a_restore(var: Path) -> list[str]:
    """The processes that would keep `manage.py restore` from working."""
    return sorted(path.name.split(".")[0] for path in (var / "running").glob("[!.]*"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_ends_without_an_orphan(tmp_path: Path, how: signal.Signals) -> None:
    stack = start_stack(tmp_path, BACKEND="simulated")
    try:
        assert get(f"{stack.web}/health/") == b"ok"
        assert b"ok" in get(f"{stack.engine}/health")
        assert len(processes_of(stack.marker)) >= 6
        deadline = time.monotonic() + 30
        while told_to_a_restore(tmp_path) != ["observer", "web", "worker", "worker"]:
            assert time.monotonic() < deadline, told_to_a_restore(tmp_path)
            time.sleep(0.1)
    finally:
        code = stack.stop(how)
    deadline = time.monotonic() + 3
    while processes_of(stack.marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(stack.marker) == []
    assert code == 0
    assert "first account: admin" in stack.log()


@pytest.mark.timeout(240)
def test_a_killed_process_comes_back_alone(tmp_path: Path) -> None:
    stack = start_stack(tmp_path, BACKEND="simulated")
    try:
        time.sleep(5.5)  # until then a process that ends was not started rightly
        valkey = valkey_of(stack.marker)
        assert valkey is not None
        for mark in ("manage.py observe", "engine --host", "uvicorn"):
            killed = pid_of(stack.marker, mark)
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            deadline = time.monotonic() + 30
            while pid_of(stack.marker, mark) in (None, killed):
                assert time.monotonic() < deadline, f"{mark} did not come back:\n{stack.log()}"
                time.sleep(0.1)
        deadline = time.monotonic() + 30
        while not (answers(f"{stack.web}/health/") and answers(f"{stack.engine}/health")):
            assert time.monotonic() < deadline, stack.log()
            time.sleep(0.1)
        for queue in ("celery", "upkeep"):  # with children, which must not outlive it
            family = workers_of(stack.marker, queue)
            assert len(family) > 1
            os.kill(min(family), signal.SIGKILL)
            deadline = time.monotonic() + 30
            while len(workers_of(stack.marker, queue)) < len(family) or family & workers_of(stack.marker, queue):
                assert time.monotonic() < deadline, f"{family} and {workers_of(stack.marker, queue)}:\n{stack.log()}"
                time.sleep(0.1)
        assert valkey_of(stack.marker) == valkey
        assert stack.log().count("killed by SIGKILL") == 5
    finally:
        code = stack.stop()
    assert code == 0
    assert processes_of(stack.marker) == []


def workers_of(marker: str, queue: str) -> set[int]:
    """A worker of that queue and its children, which have its command line."""
    found = set()
    for pid in processes_of(marker):
        with contextlib.suppress(OSError):
            if f"-Q\0{queue}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def answers(url: str) -> bool:
    try:
        return bool(get(url))
    except OSError:
        return False


@pytest.mark.timeout(120)
def test_a_process_that_cannot_start_ends_the_whole(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no-such-flag"):
        start_stack(tmp_path, BACKEND="simulated", ENGINE_ARGS="--no-such-flag")
