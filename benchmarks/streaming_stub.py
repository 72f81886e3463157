"""A server that streams known events at known times: what the load generator is measured against. As a process of its own.

`python -m benchmarks.streaming_stub --chunks 64 --first-ms 20 --gap-ms 5` prints its URL and serves until it is ended. It
answers every POST with llama-server's native events, or OpenAI's under /v1. Without a gap, `--per-write` chunks go in one write.
The last event says when the request was received and each chunk was written, on the system's monotonic clock, which all
processes of a machine share. A body's `n_predict` (or `max_tokens`) overrides the number of chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import time
from dataclasses import dataclass

import httptools
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NATIVE = b'data: {"index":0,"content":" token","tokens":[301],"stop":false,"id_slot":0,"tokens_predicted":2}\n\n'
CHAT = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" token"}}],"id":"x","model":"m"}\n\n'
WANTED = re.compile(rb'"(?:n_predict|max_tokens)":\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Timing:
    """`per_write`: chunks in one write where no gap is asked for, as a busy server's come."""

    chunks: int
    first_s: float
    gap_s: float
    per_write: int = 4


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


FRAMED_NATIVE, FRAMED_CHAT = framed(NATIVE), framed(CHAT)


class Connection(asyncio.Protocol):
    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._body = b""
        self._native = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._native = not url.startswith(b"/v1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        received = time.perf_counter()
        if self._transport is None:
            return
        found = WANTED.search(self._body)
        chunks = int(found[1]) if found else self._timing.chunks
        if not self._body:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return
        self._transport.write(HEAD)
        if self._timing.first_s or self._timing.gap_s:
            self._loop.call_later(self._timing.first_s, self._chunk, chunks, received, [])
        else:
            self._loop.call_soon(self._chunk, chunks, received, [])

    def _chunk(self, left: int, received: float, written: list[float]) -> None:
        if self._transport is None:
            return
        count = 1 if self._timing.gap_s else min(left, self._timing.per_write)
        written.append(time.perf_counter())
        self._transport.write((FRAMED_NATIVE if self._native else FRAMED_CHAT) * count)
        left -= count
        if left > 0 and self._timing.gap_s:
            due = written[0] + len(written) * self._timing.gap_s
            self._loop.call_later(max(0.0, due - time.perf_counter()), self._chunk, left, received, written)
        elif left > 0:
            self._loop.call_soon(self._chunk, left, received, written)
        else:
            self._transport.write(self._end(received, written))

    def _end(self, received: float, written: list[float]) -> bytes:
        timings = {"received_at": received, "written_at": written}
        if self._native:
            last = {"content": "", "tokens": [], "stop": True, "timings": timings}
            return framed(b"data: " + json.dumps(last).encode() + b"\n\n") + framed(b"")
        stop = {"choices": [{"finish_reason": "stop", "index": 0, "delta": {}}], "timings": timings}
        return framed(b"data: " + json.dumps(stop).encode() + b"\n\n") + framed(b"data: [DONE]\n\n") + framed(b"")


async def serve(timing: Timing) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(timing), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    over = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, over.set)
    await over.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--first-ms", type=float, default=0.0)
    parser.add_argument("--gap-ms", type=float, default=0.0)
    parser.add_argument("--per-write", type=int, default=4)
    asked = parser.parse_args()
    uvloop.run(serve(Timing(asked.chunks, asked.first_ms / 1000, asked.gap_ms / 1000, asked.per_write)))


if __name__ == "__main__":
    main()
