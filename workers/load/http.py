"""HTTP/1.1 for the load generator: one asyncio protocol a connection, kept alive, its answers parsed in C (httptools).

Bytes go from the socket straight to a `Reading`, within the callback that got them: no task wakes for a piece of a stream, so
its time is the time at which the loop saw it, and one process reads many streams (docs/adr/0021). Redirects and the
environment's proxies do not exist here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from scheduler_api.connecting import dial
from scheduler_api.targets import ANYWHERE, AllowList
from workers.load.connection import Broken, Connection, settle
from workers.load.reading import TRUNCATED, Answer, EventTooLarge, Outcome, Reading, StreamRefused

CONNECT_S = 5.0
ENDING_S = 1.0  # for the rest of a body behind its last event; then the connection is closed instead of used again


@dataclass(frozen=True, slots=True)
class Limits:
    """`silence_s`: the longest silence that is not yet an error. `leave_s`, `leave_tokens`: when the client goes away by plan."""

    silence_s: float = 600.0
    leave_s: float | None = None
    leave_tokens: int | None = None


class Wire:
    """Connections to one origin, at most `most` at once.

    A request that finds none free waits, and its dispatch delay shows it.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        most: int = 4096,
        tls: Callable[[], ssl.SSLContext] | None = None,
        allow: AllowList = ANYWHERE,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base_url!r} is not an http or https URL.")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._key = api_key
        self._tls = tls
        self._allow = allow
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
        self._room = asyncio.Semaphore(most)

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in list(self._all):
            connection.close()
        await asyncio.sleep(0)

    def encode(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """The bytes of a POST. Values of headers must be free of line ends; ValueError otherwise."""
        lines = [f"POST {self._prefix}{path} HTTP/1.1", f"Host: {self._authority}", "Content-Type: application/json"]
        lines += ["Accept: text/event-stream, application/json", f"Content-Length: {len(body)}"]
        given = dict(headers or {}) | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        for name, value in given.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"The header {name} would hold a line end.")
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body

    async def exchange(self, request: bytes, reading_of: Callable[[], Reading], limits: Limits) -> Answer:
        """Sends it and reads the answer. Failures come back in the answer; cancelling the task closes the connection at once.

        `reading_of` is called when there is room to send: the moment counts as sent, and connecting, where it is needed,
        follows it.
        """
        async with self._room:
            reading = reading_of()
            connection: Connection | None = None
            try:
                while True:
                    connection = self._take() or await self._connect()
                    try:
                        return await self._through(connection, request, reading, limits)
                    except Broken as error:
                        if not error.stale:
                            raise
            except TimeoutError:
                return reading.answer(Outcome.TIMEOUT, f"The server sent nothing for {limits.silence_s:g} s.")
            except Broken as error:
                if reading.headers_at is not None and reading.status == 200:
                    return reading.answer(Outcome.TRUNCATED, TRUNCATED)
                return reading.answer(Outcome.CONNECTION, f"The connection failed: {error}.")
            except OSError as error:
                return reading.answer(Outcome.CONNECTION, f"The connection failed: {error.strerror or error}.")
            except (StreamRefused, EventTooLarge) as error:
                return reading.answer(Outcome.FAILED if reading.status == 200 else Outcome.REFUSED, str(error))
            except asyncio.CancelledError:
                if connection is not None:
                    connection.close()
                raise

    async def _through(self, connection: Connection, request: bytes, reading: Reading, limits: Limits) -> Answer:
        done = connection.send(request, reading, limits.leave_tokens, self._give_back)
        loop = asyncio.get_running_loop()
        leave = None if limits.leave_s is None else loop.call_later(limits.leave_s, settle, done, True)
        silence = _Silence(connection, done, limits.silence_s)
        try:
            left = await done
        finally:
            silence.stop()
            if leave is not None:
                leave.cancel()
        if left:
            connection.close()
            return reading.answer(Outcome.CANCELLED)
        if connection.holds(reading):
            loop.call_later(ENDING_S, self._drop, connection, reading)
        return reading.answer()

    # -- connections --------------------------------------------------------------------------------------------------

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        return None

    async def _connect(self) -> Connection:
        context = (self._tls() if self._tls else ssl.create_default_context()) if self._secure else None
        connection: Connection
        try:
            _, connection = await dial(Connection, self._host, self._port, self._allow, context=context, limit_s=CONNECT_S)
        except TimeoutError:
            raise Broken(f"no connection within {CONNECT_S:g} s") from None
        self._all.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        if connection.usable:
            connection.used = True
            self._idle.append(connection)
        else:
            self._all.discard(connection)
            connection.close()

    def _drop(self, connection: Connection, reading: Reading) -> None:
        """A server may keep the body open behind its last event; then the connection is of no more use."""
        if connection.holds(reading):
            self._all.discard(connection)
            connection.close()


class _Silence:
    """Watches for a server that sends nothing any more: one timer a silence, not one a piece."""

    def __init__(self, connection: Connection, done: asyncio.Future[bool], limit_s: float) -> None:
        self._connection, self._done, self._limit_s = connection, done, limit_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limit_s, self._look)

    def _look(self) -> None:
        left = self._connection.last_data + self._limit_s - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        elif not self._done.done():
            self._done.set_exception(TimeoutError())
            self._connection.close()

    def stop(self) -> None:
        self._timer.cancel()
