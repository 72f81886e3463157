"""Two hundred viewers of one busy server: how late a batch reaches their browsers, what they miss, and what it costs in memory.

The whole product runs as `make run` starts it, on the simulated backend, so that the cores are the console's. Each viewer is a
WebSocket connection of its own; a batch's delay is from its end on the engine's clock to the receipt of the frame that has it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.cookiejar
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.common import Client, complete, finish, free_port, request, spread, table

ROOT = Path(__file__).parent.parent
PASSWORD = "only for this benchmark"
N_SLOTS = 8
TOKENS = 300, 470  # of the simulated vocabulary, without those that end a text
START_S = 120.0
WARM_UP_S = 20.0


@dataclass(slots=True)
class Viewer:
    """What one browser would have seen; delays in seconds."""

    frames: int = 0
    gaps: int = 0
    snapshots: int = 0
    seq: int | None = None
    last_iteration: int = 0
    delays: list[float] = field(default_factory=list)
    n_bytes: int = 0

    def take(self, raw: bytes, now: float, *, measured: bool) -> None:
        message: dict[str, Any] = orjson.loads(raw)
        if message["type"] == "snapshot":
            self.snapshots += 1
            self.seq = message["state"]["seq"]
            return
        if message["type"] != "delta":
            return
        if self.seq is not None and message["seq"] != self.seq + 1:
            self.gaps += 1
        self.seq = message["seq"]
        if not measured:
            return
        self.frames += 1
        self.n_bytes += len(raw)
        for iteration in message.get("iterations", ()):
            ended = iteration["t"] + (iteration["plan_ms"] + iteration["run_ms"] + iteration["settle_ms"]) / 1e3
            self.delays.append(now - ended)


@dataclass(frozen=True, slots=True)
class Stack:
    process: subprocess.Popen[bytes]
    web: int
    engine: int


@contextlib.contextmanager
def stack() -> Iterator[Stack]:
    """`make run` in a folder of its own; ended by its pid."""
    web, engine = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL", "MODEL")}
        env |= {"SLOTBOARD_VAR_DIR": folder, "SLOTBOARD_ADMIN_PASSWORD": PASSWORD, "BACKEND": "simulated"}
        env |= {"PORT": str(web), "ENGINE_PORT": str(engine), "PARALLEL": str(N_SLOTS), "CTX_SIZE": str(N_SLOTS * 16384)}
        command = [sys.executable, "-m", "tools.run"]
        log = Path(folder) / "stack.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_S
            while b"slotboard: open" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the product did not start:\n{log.read_text()[-3000:]}")
                time.sleep(0.1)
            yield Stack(process, web, engine)
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


def logged_in(port: int) -> str:
    """The Cookie header of a session."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
    url = f"http://127.0.0.1:{port}/login/"
    page = opener.open(url).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token is not None
    form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token[1]}
    opener.open(urllib.request.Request(url, urllib.parse.urlencode(form).encode(), {"Referer": url})).read()
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)


async def keep_busy(port: int, slot: int) -> None:
    """One client after another: a prompt, then an answer."""
    rng = random.Random(slot)
    while True:
        async with Client(port) as client:
            body = request(rng, 0, rng.randrange(50, 400), slot=slot)
            body["prompt"] = [rng.randrange(*TOKENS) for _ in range(rng.randrange(200, 3000))]
            await complete(client, body)


@contextlib.asynccontextmanager
async def watching(port: int, cookie: str) -> AsyncIterator[ClientConnection]:
    url, origin = f"ws://127.0.0.1:{port}/ws/servers/1/", f"http://127.0.0.1:{port}"
    headers = {"Cookie": cookie, "Origin": origin}
    async with connect(url, additional_headers=headers, proxy=None, max_size=None, compression=None) as socket:
        yield socket


async def view(port: int, cookie: str, viewer: Viewer, begun: float, until: float) -> None:
    async with watching(port, cookie) as socket:
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                raw = await asyncio.wait_for(socket.recv(decode=False), left)
                viewer.take(raw, time.time(), measured=time.monotonic() > begun)


def resident_mb(root: int) -> dict[str, float]:
    """Memory of each Python process below `root`, by what it runs."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            for name, mark in (("web", "uvicorn"), ("observer", "manage.py observe")):
                if mark in command:
                    found[name] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return found


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


async def run(running: Stack, n_viewers: int, seconds: float) -> tuple[list[Viewer], dict[str, float], dict[str, float]]:
    cookie = await asyncio.to_thread(logged_in, running.web)
    load = [asyncio.create_task(keep_busy(running.engine, slot)) for slot in range(N_SLOTS)]
    viewers = [Viewer() for _ in range(n_viewers)]
    begun = time.monotonic() + WARM_UP_S
    seen = [asyncio.create_task(view(running.web, cookie, viewer, begun, begun + seconds)) for viewer in viewers]
    await asyncio.sleep(WARM_UP_S)
    before = resident_mb(running.process.pid)
    await asyncio.wait([*load, *seen], return_when=asyncio.FIRST_COMPLETED)
    if over := next((task for task in load if task.done()), None):
        over.result()  # raises: the load never ends by itself
    await asyncio.gather(*seen)
    after = resident_mb(running.process.pid)
    for task in load:
        task.cancel()
    await asyncio.gather(*load, return_exceptions=True)
    return viewers, before, after


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, round(share * len(values)) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fanout")
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args()
    with stack() as running:
        viewers, before, after = asyncio.run(run(running, args.viewers, args.minutes * 60))
    p95s = [percentile(viewer.delays, 0.95) * 1e3 for viewer in viewers if viewer.delays]
    medians = [percentile(viewer.delays, 0.5) * 1e3 for viewer in viewers if viewer.delays]
    rates = [viewer.frames / (args.minutes * 60) for viewer in viewers]
    growth = {name: after[name] - before[name] for name in after if name in before}
    rows = [
        ["delay of a batch, median of a viewer, ms", *(f"{pick(medians):.0f}" for pick in (min, middle, max))],
        ["delay of a batch, p95 of a viewer, ms", *(f"{pick(p95s):.0f}" for pick in (min, middle, max))],
        ["frames a second and viewer", *(f"{pick(rates):.2f}" for pick in (min, middle, max))],
    ]
    print(table(["viewers' figures", "min", "median", "max"], rows))
    for name in growth:
        print(f"{name}: {before[name]:.0f} MB after warm-up, {after[name]:.0f} MB at the end")
    mean_bytes = sum(viewer.n_bytes for viewer in viewers) / max(1, sum(viewer.frames for viewer in viewers))
    print(f"{mean_bytes:.0f} bytes a frame; {sum(viewer.snapshots for viewer in viewers)} snapshots")
    figures: dict[str, Any] = spread(p95s, "p95_ms") | {"gaps": sum(viewer.gaps for viewer in viewers)}
    figures |= {"rss_growth_mb": round(sum(growth.values()), 1), "viewers": sum(bool(viewer.frames) for viewer in viewers)}
    finish("fanout", figures | {"minutes": args.minutes})


def middle(values: list[float]) -> float:
    return percentile(values, 0.5)


if __name__ == "__main__":
    main()
