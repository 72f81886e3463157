"""The whole product as `make run` starts it, on free ports and in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a password for the tests"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def processes_of(session_marker: str) -> list[int]:
    """Pids whose environment carries the marker: everything that one stack started, whoever its parent is now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if session_marker.encode() in environ and state != "Z":
                found.append(int(entry.name))
    return found


def pid_of(session_marker: str, mark: str) -> int | None:
    """The process of a stack whose command line has the mark, without its shell."""
    for pid in processes_of(session_marker):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command[0].rpartition(b"/")[2] != b"sh" and mark.encode() in b" ".join(command):
                return pid
    return None


def valkey_of(session_marker: str) -> int | None:
    """A stack's Valkey. It writes its title over its environment, so it is told by its port."""
    beside = pid_of(session_marker, "manage.py observe")
    port = re.search(rb"\0VALKEY_PORT=(\d+)\0", Path(f"/proc/{beside}/environ").read_bytes()) if beside else None
    for entry in Path("/proc").iterdir() if port else ():
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if port and b"valkey-server" in command and command.rstrip(b"\0 ").endswith(b":" + port[1]):
                return int(entry.name)
    return None


@dataclass
class Stack:
    web: str
    engine: str
    var: Path
    process: subprocess.Popen[str]
    marker: str
    output: Path

    def log(self) -> str:
        return self.output.read_text(errors="replace")[-6000:]

    def stop(self, how: signal.Signals = signal.SIGINT, limit_s: float = 15.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            for pid in processes_of(self.marker):
                os.kill(pid, signal.SIGKILL)
            raise


def run_environment(var: Path, **extra: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLOTBOARD_", "LLAMA_", "DJANGO_"))}
    for name in ("MODEL", "BACKEND", "REDIS_URL", "DATABASE_URL", "PORT", "ENGINE_PORT"):
        kept.pop(name, None)
    return {**kept, "SLOTBOARD_VAR_DIR": str(var), "SLOTBOARD_ADMIN_PASSWORD": PASSWORD, **extra}


def start_stack(var: Path, limit_s: float = 120.0, **extra: str) -> Stack:
    """Starts `python -m tools.run` and waits for its last line, the URL. Prints the output when that does not come."""
    web, engine = free_port(), free_port()
    marker = f"SLOTBOARD_STACK_MARKER={var.name}-{web}"
    name, value = marker.split("=")
    env = run_environment(var, PORT=str(web), ENGINE_PORT=str(engine), **{name: value}, **extra)
    output = var / "stack.log"
    with output.open("w") as sink:
        process = subprocess.Popen([sys.executable, "-m", "tools.run"], cwd=ROOT, env=env, stdout=sink, stderr=sink, text=True)
    stack = Stack(f"http://127.0.0.1:{web}", f"http://127.0.0.1:{engine}", var, process, marker, output)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if re.search(r"slotboard: open http://", stack.log()):
            return stack
        if process.poll() is not None:
            break
        time.sleep(0.1)
    log = stack.log()
    stack.stop(signal.SIGTERM)
    raise AssertionError(f"the stack did not start in {limit_s} s:\n{log}")


def get(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as response:
        return bytes(response.read())
