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
from typing import cast
from urllib.parse import urlsplit

import httptools

from workers.load.reading import TRUNCATED, Answer, EventTooLarge, Outcome, Reading, StreamRefused

CONNECT_S = 5.0
ENDING_S = 1.0  # for the rest of a body behind its last event; then the connection is closed instead of used again


@dataclass(frozen=True, slots=True)
class Limits:
    """`silence_s`: the longest silence that is not yet an error. `leave_s`, `leave_tokens`: when the client goes away by plan."""

    silence_s: float = 600.0
    leave_s: float | None = None
    leave_tokens: int | None = None


class _Broken(Exception):
    """The connection ended before the answer did. `stale`: a kept one, closed by the server before it saw the request."""

    def __init__(self, text: str, *, stale: bool = False) -> None:
        super().__init__(text)
        self.stale = stale


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.used = False
        self.usable = True  # for another request
        self.last_data = 0.0
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpResponseParser | None = None
        self._reading: Reading | None = None
        self._done: asyncio.Future[bool] | None = None
        self._freed: Callable[[_Connection], None] | None = None
        self._leave_tokens: int | None = None
        self._content_type = ""
        self._framed = False
        self._any = False
        self._pieces: list[bytes] = []

    # -- a request ----------------------------------------------------------------------------------------------------

    def send(
        self, request: bytes, reading: Reading, leave_tokens: int | None, freed: Callable[[_Connection], None]
    ) -> asyncio.Future[bool]:
        """True when the client left by plan, False when the answer is over; or an exception.

        `freed` is called once the connection is free for another request.
        """
        assert self.transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._reading, self._leave_tokens, self._freed = reading, leave_tokens, freed
        self._content_type, self._framed, self._any = "", False, False
        self._done = self._loop.create_future()
        self.last_data = self._loop.time()
        self.transport.write(request)
        return self._done

    def close(self) -> None:
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.last_data = self._loop.time()
        self._any = True
        if self._parser is None:  # bytes that no request asked for
            self.close()
            return
        try:
            self._parser.feed_data(data)
            self._flush()
        except (StreamRefused, EventTooLarge) as error:
            self._fail(error)
        except httptools.HttpParserUpgrade:
            self._fail(_Broken("the server wants to change the protocol"))
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except httptools.HttpParserError:
            self._fail(_Broken("the answer is not HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._done is None or self._done.done():
            return
        if exc is None and self._any and not self._framed and self._reading is not None and self._reading.headers_at is not None:
            self._complete()  # a body without length or chunks ends with its connection
        else:
            text = str(exc) if exc else "the server closed it" if self._any else "the server closed it without an answer"
            self._fail(_Broken(text, stale=self.used and not self._any))

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self._reading is not None and (status := self._parser.get_status_code()) >= 200:
            self._reading.headers(status, self._content_type)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def _flush(self) -> None:
        """What one look at the socket brought, as one piece: a server's chunks that came together were seen at the same time."""
        reading, pieces = self._reading, self._pieces
        if not pieces:
            return
        self._pieces = []
        if reading is None or reading.over:
            return
        if reading.take(pieces[0] if len(pieces) == 1 else b"".join(pieces)):
            self._settle(False)
        elif self._leave_tokens is not None and reading.seen >= self._leave_tokens:
            self._settle(True)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() >= 200:
            self._flush()
            self.usable = self.usable and self._parser.should_keep_alive()
            self._complete()

    # -- endings ------------------------------------------------------------------------------------------------------

    def _complete(self) -> None:
        reading, freed = self._reading, self._freed
        self._parser = self._reading = self._freed = None
        if reading is not None and not reading.over:
            try:
                reading.end()
            except StreamRefused as error:
                self._fail(error)
        self._settle(False)
        if freed is not None:
            freed(self)

    def _settle(self, left: bool) -> None:
        if self._done is not None:
            _settle(self._done, left)

    def holds(self, reading: Reading) -> bool:
        """Whether the rest of this answer's body is still to come."""
        return self._reading is reading

    def _fail(self, error: BaseException) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        if not isinstance(error, StreamRefused) or self._parser is not None:
            self.close()


class Wire:
    """Connections to one origin, at most `most` at once.

    A request that finds none free waits, and its dispatch delay shows it.
    """

    def __init__(
        self, base_url: str, api_key: str = "", *, most: int = 4096, tls: Callable[[], ssl.SSLContext] | None = None
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
        self._idle: deque[_Connection] = deque()
        self._all: set[_Connection] = set()
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
            connection: _Connection | None = None
            try:
                while True:
                    connection = self._take() or await self._connect()
                    try:
                        return await self._through(connection, request, reading, limits)
                    except _Broken as error:
                        if not error.stale:
                            raise
            except TimeoutError:
                return reading.answer(Outcome.TIMEOUT, f"The server sent nothing for {limits.silence_s:g} s.")
            except _Broken as error:
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

    async def _through(self, connection: _Connection, request: bytes, reading: Reading, limits: Limits) -> Answer:
        done = connection.send(request, reading, limits.leave_tokens, self._give_back)
        loop = asyncio.get_running_loop()
        leave = None if limits.leave_s is None else loop.call_later(limits.leave_s, _settle, done, True)
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

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        context = (self._tls() if self._tls else ssl.create_default_context()) if self._secure else None
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=context)
        except TimeoutError:
            raise _Broken(f"no connection within {CONNECT_S:g} s") from None
        self._all.add(connection)
        return connection

    def _give_back(self, connection: _Connection) -> None:
        if connection.usable:
            connection.used = True
            self._idle.append(connection)
        else:
            self._all.discard(connection)
            connection.close()

    def _drop(self, connection: _Connection, reading: Reading) -> None:
        """A server may keep the body open behind its last event; then the connection is of no more use."""
        if connection.holds(reading):
            self._all.discard(connection)
            connection.close()


class _Silence:
    """Watches for a server that sends nothing any more: one timer a silence, not one a piece."""

    def __init__(self, connection: _Connection, done: asyncio.Future[bool], limit_s: float) -> None:
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


def _settle(done: asyncio.Future[bool], left: bool) -> None:
    if not done.done():
        done.set_result(left)
