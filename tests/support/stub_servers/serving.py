"""Runs a stub server over a real socket, with uvicorn in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.support.stub_servers.base import FakeServer


class _Thread:
    """One uvicorn in a thread, on a port that was bound first."""

    def __init__(self, server: FakeServer, port: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        server.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(server.app(), log_level="error", lifespan="off", timeout_graceful_shutdown=0)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def start(self) -> None:
        self.thread.start()
        while not self.server.started and self.thread.is_alive():
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(5)
        self.socket.close()


@contextmanager
def running[S: FakeServer](server: S, port: int = 0) -> Iterator[S]:
    thread = _Thread(server, port)
    thread.start()
    try:
        yield server
    finally:
        thread.stop()


def unused_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
