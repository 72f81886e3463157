"""Inference servers that answer what a test tells them to, over real sockets, with uvicorn in a thread.

with running(FakeLlamaServer()) as server:
    server.slots = [...]
    server.url
"""

from __future__ import annotations

from tests.support.stub_servers.base import BAD_KEY, LOADING, FakeRedirect, FakeServer, Json
from tests.support.stub_servers.engine import POLICY_FIELDS, FakeEngine, engine_slot, iteration
from tests.support.stub_servers.llama import (
    IDLE_SLOT,
    NO_MODEL,
    NOT_LOADED,
    OFF_METRICS,
    OFF_SLOTS,
    FakeLlamaServer,
    FakeRouter,
    busy_slot,
)
from tests.support.stub_servers.serving import running, unused_port
from tests.support.stub_servers.vllm import VLLM_METRICS, FakeVllm

__all__ = [
    "BAD_KEY",
    "IDLE_SLOT",
    "LOADING",
    "NOT_LOADED",
    "NO_MODEL",
    "OFF_METRICS",
    "OFF_SLOTS",
    "POLICY_FIELDS",
    "VLLM_METRICS",
    "FakeEngine",
    "FakeLlamaServer",
    "FakeRedirect",
    "FakeRouter",
    "FakeServer",
    "FakeVllm",
    "Json",
    "busy_slot",
    "engine_slot",
    "iteration",
    "running",
    "unused_port",
]
