"""What every benchmark needs: servers as child processes, a cheap HTTP client, medians, and the last line of output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.tiny_model import DEFAULT_PATH, ORDINARY_TOKENS, ensure_tiny_model

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 300.0


class ServerFailed(Exception):
    """A server did not start or died; the message carries the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Start-up flags that both servers get alike; sizes in tokens."""

    ctx_size: int
    parallel: int = 4
    batch_size: int = 2048
    ubatch_size: int = 512
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    kv_unified: bool = False

    def arguments(self) -> list[str]:
        sizes = {"ctx-size": self.ctx_size, "parallel": self.parallel, "batch-size": self.batch_size}
        sizes |= {"ubatch-size": self.ubatch_size, "threads": self.threads}
        pairs = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
        return [*pairs, "--kv-unified" if self.kv_unified else "--no-kv-unified"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def model_path(given: Path | None) -> Path:
    return given or ensure_tiny_model(Path(__file__).parent.parent / DEFAULT_PATH)


def engine_command(model: Path, port: int, flags: Flags) -> list[str]:
    where = ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", "engine", *where, *flags.arguments()]


def stock_command(model: Path, port: int, flags: Flags) -> list[str]:
    return [sys.executable, "-m", "benchmarks.stock", str(model), str(port), *flags.arguments()]


@contextlib.contextmanager
def serving(command: Sequence[str], port: int) -> Iterator[int]:
    """Start a server, wait until /health answers 200, give its port, and end it by its pid whatever happened."""
    root = Path(__file__).parent.parent
    log = root / "var" / f"bench-{port}.log"
    log.parent.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, _leave)
    with log.open("wb") as out:
        child = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
    try:
        asyncio.run(wait_healthy(child, port, log))
        yield port
    finally:
        _end(child)
        log.unlink(missing_ok=True)


def _leave(signum: int, frame: object) -> None:
    """Turn a signal into an exception, so that children are ended on the way out."""
    raise SystemExit(128 + signum)


async def wait_healthy(child: subprocess.Popen[bytes], port: int, log: Path | None = None) -> None:
    """Until /health answers 200; ServerFailed with the end of the log otherwise."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            break
        with contextlib.suppress(OSError, EOFError, ValueError):
            async with Client(port) as client:
                if (await client.get("/health"))[0] == 200:
                    return
        await asyncio.sleep(0.05)
    tail = "" if log is None else log.read_text(errors="replace")[-2000:]
    raise ServerFailed(f"the server on port {port} did not come up (exit code {child.poll()}):\n{tail}")


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin:
        child.stdin.close()
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class Client:
    """One kept-alive HTTP/1.1 connection that does as little as it can: it shares the machine with the server it measures."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._exchange("GET", path, b"")

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Status and whole body; a streamed body comes as its raw event text."""
        return await self._exchange("POST", path, json.dumps(body, separators=(",", ":")).encode())

    async def patch(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        return await self._exchange("PATCH", path, json.dumps(body, separators=(",", ":")).encode())

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ", 2)[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            if "content-length" in headers:
                return status, await self._reader.readexactly(int(headers["content-length"]))
            return status, b"".join([chunk async for chunk in self._chunks()])

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion as its client saw it; seconds on the client's clock."""

    begun: float
    ended: float
    prompt_n: int
    predicted_n: int
    timings: Mapping[str, float]

    @property
    def wall_s(self) -> float:
        return self.ended - self.begun


async def complete(client: Client, body: Mapping[str, Any]) -> Answer:
    """POST /completion and wait for the end. Raises ServerFailed on any other answer than 200 with timings."""
    begun = time.perf_counter()
    status, raw = await client.post("/completion", body)
    ended = time.perf_counter()
    if status != 200:
        raise ServerFailed(f"the server answered {status}: {raw[:300]!r}")
    last = raw.rsplit(b"data: ", 1)[-1] if body.get("stream") else raw
    timings = json.loads(last).get("timings")
    if not timings:
        raise ServerFailed(f"no timings in the answer: {last[:300]!r}")
    return Answer(begun, ended, timings["prompt_n"], timings["predicted_n"], timings)


def request(rng: random.Random, n_prompt: int, n_predict: int, *, stream: bool = False, slot: int = -1) -> dict[str, Any]:
    """A greedy completion of fresh random ids, so that nothing of it is cached."""
    prompt = rng.choices(ORDINARY_TOKENS, k=n_prompt)
    options = {"n_predict": n_predict, "temperature": 0, "ignore_eos": True, "stream": stream, "id_slot": slot}
    return {"prompt": prompt, "cache_prompt": True, **options}


def spread(values: Sequence[float], name: str) -> dict[str, float]:
    """Median, least and largest under the names that every figure has."""
    return {name: round(statistics.median(values), 4), f"{name}_min": round(min(values), 4), f"{name}_max": round(max(values), 4)}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows))


def finish(name: str, figures: Mapping[str, object]) -> None:
    """The benchmark's last line."""
    print(json.dumps({"name": name, "figures": dict(figures)}), flush=True)
