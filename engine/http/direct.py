"""A short cut for streamed chunks: written to the socket by the loop thread, without a turn of the event loop.

Waking the event loop's thread for each token costs more than the chunk itself: a switch of threads, and a fight for the GIL when
the next batch should start. So chunks of a stream go out right before the batch that follows them. Whatever does not go smoothly
(a client that reads too slowly, a connection that is not plain HTTP/1.1) takes the ordinary way.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable

from starlette.types import Scope, Send

from engine.delivery import Event, Raw

TRANSPORT = "engine.transport"  # where the outermost layer leaves the connection's transport in the scope


def remember_transport(scope: Scope, send: Send) -> None:
    """Called with uvicorn's own `send`; elsewhere there is no transport and streams take the ordinary way."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if hasattr(transport, "get_write_buffer_size"):  # uvloop's transports are not of asyncio's class
        scope[TRANSPORT] = transport


def frame(body: bytes) -> bytes:
    """One chunk of HTTP/1.1's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class DirectSink:
    """The connection of one stream, as the loop thread sees it. `writes` counts what went out.

    The socket is a duplicate of the transport's: a descriptor that the transport closes could be another client's a moment later.
    The lock is held while a chunk is written, which never blocks, and keeps `close` and `ping` apart from it.
    """

    __slots__ = ("_encode", "_lock", "_sock", "writes")

    def __init__(self, sock: socket.socket, encode: Callable[[Event], bytes]) -> None:
        self._sock: socket.socket | None = sock
        self._encode = encode
        self._lock = threading.Lock()
        self.writes = 0

    def take(self, event: Event) -> Event | None:
        """Writes the event, for the loop thread. None when that is all, else what the reader must send in its place."""
        with self._lock:
            if self._sock is None:
                return event
            body = self._encode(event)
            if not body:
                return None
            data = frame(body)
            sent = self._send(data)
        return None if sent == len(data) else Raw(event.handle, data[sent:])

    def ping(self, body: bytes) -> bytes | None:
        """Writes a sign of life. Bytes: what is left for the transport to write; None: the sink was closed before."""
        with self._lock:
            if self._sock is None:
                return None
            data = frame(body)
            sent = self._send(data)
        return data[sent:]

    def close(self) -> None:
        """From now on every event takes the ordinary way."""
        with self._lock:
            self._close()

    def _send(self, data: bytes) -> int:
        """How many bytes went out. A sink that could not write everything is closed, and so is one whose client is gone."""
        assert self._sock is not None
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the connection's transport notices it by itself
            sent = len(data)
            self._close()
            return sent
        if sent < len(data):
            self._close()
        self.writes += 1
        return sent

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


async def open_sink(scope: Scope, encode: Callable[[Event], bytes]) -> DirectSink | None:
    """A sink for a response whose head was sent, once nothing of it waits in the transport; None where there is no short cut."""
    transport: asyncio.Transport | None = scope.get(TRANSPORT)
    if transport is None or scope["http_version"] != "1.1" or scope["scheme"] != "http":
        return None
    await asyncio.sleep(0)  # the event loop writes at the end of its turn
    sock = transport.get_extra_info("socket")
    if sock is None or transport.is_closing() or transport.get_write_buffer_size():
        return None
    twin = socket.socket(fileno=os.dup(sock.fileno()))
    twin.setblocking(False)
    return DirectSink(twin, encode)


def write_raw(scope: Scope, data: bytes) -> None:
    """The rest of a chunk that the socket did not take; the transport keeps it until it does."""
    transport: asyncio.Transport = scope[TRANSPORT]
    if data and not transport.is_closing():
        transport.write(data)
