"""A stock llama-server (xllamacpp) for tests, as a process of its own that ends when its input closes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from engine.tiny_model import DEFAULT_PATH, ensure_tiny_model

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0


@contextmanager
def running_stock(
    *,
    parallel: int = 2,
    ctx_size: int = 16384,
    metrics: bool = False,
    slots: bool = True,
    sleep_s: int = -1,
    api_key: str = "",
    port: int = 0,
    batch: int = 2048,
) -> Iterator[str]:
    """Yields its URL once the tiny model is loaded. It goes to sleep after `sleep_s` without use, -1: never."""
    model = ensure_tiny_model(ROOT / DEFAULT_PATH)
    program = _PROGRAM.format(
        model=str(model),
        parallel=parallel,
        ctx_size=ctx_size,
        metrics=metrics,
        slots=slots,
        sleep_s=sleep_s,
        api_keys=[api_key] if api_key else [],
        port=port,
        batch=batch,
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        _wait_until_healthy(url)
        yield url
    finally:
        process.kill()  # it keeps nothing, and llama.cpp's own end takes seconds
        process.communicate()


def _wait_until_healthy(url: str) -> None:
    deadline = time.monotonic() + START_S
    while httpx2.get(url + "/health").status_code != 200:
        assert time.monotonic() < deadline, "the stock server did not load its model"
        time.sleep(0.05)


_PROGRAM = """
import sys
from xllamacpp import CommonParams, Server

params = CommonParams()
params.model.path = {model!r}
params.hostnames, params.port = ["127.0.0.1"], {port}
params.n_parallel, params.n_ctx, params.kv_unified = {parallel}, {ctx_size}, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_batch = {batch}
params.endpoint_metrics, params.endpoint_slots = {metrics}, {slots}
params.sleep_idle_seconds, params.api_keys = {sleep_s}, {api_keys}
params.warmup, params.fit_params, params.verbosity, params.ui = False, False, 0, False
server = Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
