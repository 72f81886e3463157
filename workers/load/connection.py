"""One HTTP/1.1 connection as an asyncio protocol: bytes in, a `Reading` told, one future settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from workers.load.reading import EventTooLarge, Reading, StreamRefused


class Broken(Exception):
    """The connection ended before the answer did. `stale`: a kept one, closed by the server before it saw the request."""

    def __init__(self, text: str, *, stale: bool = False) -> None:
        super().__init__(text)
        self.stale = stale


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.used = False
        self.usable = True  # for another request
        self.last_data = 0.0
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpResponseParser | None = None
        self._reading: Reading | None = None
        self._done: asyncio.Future[bool] | None = None
        self._freed: Callable[[Connection], None] | None = None
        self._leave_tokens: int | None = None
        self._content_type = ""
        self._framed = False
        self._any = False
        self._pieces: list[bytes] = []

    # -- a request ----------------------------------------------------------------------------------------------------

    def send(
        self, request: bytes, reading: Reading, leave_tokens: int | None, freed: Callable[[Connection], None]
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
            self._fail(Broken("the server wants to change the protocol"))
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except httptools.HttpParserError:
            self._fail(Broken("the answer is not HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._done is None or self._done.done():
            return
        if exc is None and self._any and not self._framed and self._reading is not None and self._reading.headers_at is not None:
            self._complete()  # a body without length or chunks ends with its connection
        else:
            text = str(exc) if exc else "the server closed it" if self._any else "the server closed it without an answer"
            self._fail(Broken(text, stale=self.used and not self._any))

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
            settle(self._done, left)

    def holds(self, reading: Reading) -> bool:
        """Whether the rest of this answer's body is still to come."""
        return self._reading is reading

    def _fail(self, error: BaseException) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        if not isinstance(error, StreamRefused) or self._parser is not None:
            self.close()


def settle(done: asyncio.Future[bool], left: bool) -> None:
    if not done.done():
        done.set_result(left)
