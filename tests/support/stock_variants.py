"""A stock llama-server (xllamacpp) for any model, with any of its settings; see `stock` for the plain one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

START_S = 60.0


@contextmanager
def stock_with(model: Path, *settings: str) -> Iterator[httpx2.Client]:
    """A client of it. `settings` are lines of Python that change `params`."""
    program = _PROGRAM.format(model=str(model), settings="\n".join(settings))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        with httpx2.Client(base_url=process.stdout.readline().strip(), timeout=60, trust_env=False) as client:
            deadline = time.monotonic() + START_S
            while client.get("/health").status_code != 200:
                assert time.monotonic() < deadline, "the stock server did not load its model"
                time.sleep(0.05)
            yield client
    finally:
        process.kill()  # it keeps nothing, and llama.cpp's own end takes seconds
        process.communicate()


_PROGRAM = """
import sys
from xllamacpp import CommonAdapterLoraInfo, CommonParams, Server, llama_pooling_type

def adapter(path, scale):
    info = CommonAdapterLoraInfo()
    info.path, info.scale = path, scale
    return info

params = CommonParams()
params.model.path = {model!r}
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.n_ctx, params.kv_unified = 2, 4096, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_batch = params.n_ubatch = 512
params.warmup, params.fit_params, params.verbosity, params.ui = False, False, 0, False
{settings}
server = Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
