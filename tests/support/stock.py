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
def running_stock(*, parallel: int = 2, ctx_size: int = 16384, metrics: bool = False) -> Iterator[str]:
    """Yields its URL once the tiny model is loaded."""
    model = ensure_tiny_model(ROOT / DEFAULT_PATH)
    program = _PROGRAM.format(model=str(model), parallel=parallel, ctx_size=ctx_size, metrics=metrics)
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
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.n_ctx, params.kv_unified = {parallel}, {ctx_size}, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.endpoint_metrics = {metrics}
params.warmup, params.fit_params, params.verbosity, params.ui = False, False, 0, False
server = Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
