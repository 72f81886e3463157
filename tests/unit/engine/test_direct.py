"""Chunks that the loop thread writes by itself, and what becomes of them when the client is slow or gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator

import pytest
import uvicorn

from engine.delivery import Chunk, Event, Handle, Mailbox, Raw
from engine.http.app import create_app
from engine.http.direct import DirectSink, frame
from engine.scheduler.task import Task
from engine.text import TextStream
from tests.unit.engine.harness import served


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def encode(event: Event) -> bytes:
    return event.text.encode() if isinstance(event, Chunk) else b""


def chunk(text: str) -> Chunk:
    handle = Handle(Task(1, [1]), 1, 0, Mailbox(), TextStream(), stream=True)
    return Chunk(handle, text, [1], 1, 0.0)


def test_a_chunk_is_written_in_its_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    sink = DirectSink(pair[0], encode)
    assert sink.take(chunk("hello, hello, hello")) is None
    assert pair[1].recv(100) == b"13\r\nhello, hello, hello\r\n"
    assert sink.take(chunk("")) is None  # an empty frame would end the answer
    assert sink.ping(b": x\n\n") == b""
    assert pair[1].recv(100) == b"5\r\n: x\n\n\r\n"
    assert sink.writes == 2


def test_what_a_slow_client_does_not_take_is_handed_back_and_nothing_is_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    sink = DirectSink(pair[0], encode)
    sent = b""
    while True:
        event = chunk("x" * 3000)
        sent += frame(encode(event))
        left = sink.take(event)
        if left is not None:
            break
    assert isinstance(left, Raw)
    later = chunk("later")
    assert sink.take(later) is later
    assert sink.ping(b": x\n\n") is None
    pair[1].setblocking(False)
    received = b""
    with contextlib.suppress(BlockingIOError):
        while part := pair[1].recv(1 << 16):
            received += part
    assert received + left.data == sent


def test_a_client_that_is_gone_closes_the_sink(pair: tuple[socket.socket, socket.socket]) -> None:
    sink = DirectSink(pair[0], encode)
    pair[1].close()
    assert sink.take(chunk("a")) is None
    later = chunk("b")
    assert sink.take(later) is later
    sink.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def fetch(port: int, body: dict[str, object], pause: float) -> bytes:
    """The body of an answer, read after a pause by a client with little room."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    raw = json.dumps(body).encode()
    writer.write(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head
    await asyncio.sleep(pause)
    content = b""
    while size := int(await reader.readline(), 16):
        content += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    writer.close()
    return content


@pytest.mark.parametrize("n_cmpl", [1, 2])
@pytest.mark.parametrize("n_predict", [5, 1500])
async def test_a_stream_over_a_socket_is_whole_also_when_it_is_read_slowly(
    n_predict: int, n_cmpl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct: list[int] = []

    def counted(body: bytes) -> bytes:
        direct.append(len(body))
        return frame(body)

    monkeypatch.setattr("engine.http.direct.frame", counted)
    async with served("-c", "8192") as engine:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted sockets inherit it
        sock.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(engine.state), http="httptools", ws="none", lifespan="off", log_config=None)
        server = _Server(config)
        serving = asyncio.create_task(server.serve([sock]))
        try:
            body: dict[str, object] = {"prompt": "a", "n_predict": n_predict, "temperature": 0, "ignore_eos": True}
            body |= {"timings_per_token": True, "n_cmpl": n_cmpl}
            answer = (await engine.post("/completion", body)).json()
            texts = [one["content"] for one in (answer if n_cmpl > 1 else [answer])]
            while not server.started:
                await asyncio.sleep(0.01)
            content = await fetch(sock.getsockname()[1], {**body, "stream": True}, 0.3)
        finally:
            server.should_exit = True
            await serving
    events = [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: ")]
    for index, text in enumerate(texts):
        mine = [event for event in events if event["index"] == index]
        assert [event["tokens_predicted"] for event in mine[:-1]] == list(range(1, n_predict + 1))
        assert "".join(event["content"] for event in mine) == text
    if n_predict == 5:
        assert len(direct) == 5 * n_cmpl
    else:
        assert 0 < len(direct) < n_predict * n_cmpl  # what the client did not take in time went the ordinary way
