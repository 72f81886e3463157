"""The generator over real sockets: against a stub in a process of its own whose times are known, and servers that misbehave."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from workers.analysis.load import behind_sentence
from workers.load.clock import ClientClock
from workers.load.dialects import Native
from workers.load.http import Limits, Wire
from workers.load.openai import OpenAi
from workers.load.plan import make_plan
from workers.load.planned import Plan, Scaling
from workers.load.reading import Answer, Outcome, Reading
from workers.load.runner import Load, Runner
from workers.scenarios.streams import LoadScenario

ROOT = Path(__file__).resolve().parents[3]
POOL = tuple(range(300, 400))
FIRST_S, GAP_S, CHUNKS = 0.020, 0.005, 12


@contextmanager
def stub(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.streaming_stub", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def timed() -> Iterator[str]:
    with stub("--chunks", str(CHUNKS), "--first-ms", str(FIRST_S * 1000), "--gap-ms", str(GAP_S * 1000)) as url:
        yield url


def plan(*streams: dict[str, Any], seed: int = 1) -> Plan:
    whole = {"name": "x", "version": 1, "title": "t", "summary": "s", "written_for": 1000.0, "streams": list(streams)}
    return make_plan(LoadScenario.model_validate(whole), seed, Scaling())


def stream(name: str = "one", **fields: Any) -> dict[str, Any]:
    return {"name": name, "arrivals": {"kind": "at", "times": [0.0]}, "prompt": {"tokens": 20}, "output": CHUNKS, **fields}


async def send(url: str, load: Plan, *, chat: bool = False, most: int = 4096, silence_s: float = 30.0) -> Load:
    async with Wire(url, most=most) as wire:
        dialect = OpenAi(1, "m") if chat else Native(1, POOL)
        return await Runner(wire, dialect, ClientClock(), silence_s=silence_s).run(load)


def to_monotonic() -> float:
    return time.perf_counter() - ClientClock().now()


@pytest.mark.parametrize("chat", [False, True])
async def test_known_times_are_measured_within_two_milliseconds_at_the_declared_rate(timed: str, chat: bool) -> None:
    """Medians over 100 requests at 50 a second: a loaded machine delays some of them, and the stub says by how much itself."""
    load = await send(timed, plan(stream(arrivals={"kind": "constant", "rate": 50.0, "for_s": 2.0})), chat=chat)
    shift = to_monotonic()
    answers = [record.answer for record in load.records]
    assert [answer.outcome for answer in answers] == [Outcome.OK] * 100
    assert {len(answer.chunks) for answer in answers} == {CHUNKS}

    def off(measure: Callable[[Answer], float]) -> float:
        return statistics.median(measure(answer) for answer in answers)

    written = [answer.timings["written_at"] for answer in answers]
    assert all(len(each) == CHUNKS for each in written)
    assert off(lambda a: abs(a.chunks[0] + shift - a.timings["written_at"][0])) < 0.002
    assert off(lambda a: abs(a.chunks[-1] + shift - a.timings["written_at"][-1])) < 0.002
    assert off(lambda a: abs(a.sent_at + shift - a.timings["received_at"])) < 0.002
    true_gap = statistics.median(b - a for each in written for a, b in pairwise(each))
    seen_gap = statistics.median(b - a for each in answers for a, b in pairwise(each.chunks))
    assert abs(seen_gap - true_gap) < 0.002
    delays = [record.dispatch_s for record in load.records if record.dispatch_s is not None]
    assert len(delays) == 100
    assert statistics.median(delays) < 0.005
    assert min(delays) >= 0


async def test_waiting_in_the_client_shows_as_dispatch_delay_and_as_a_verdict() -> None:
    """40 a second, four at a time, a fifth of a second each: half of them can be served, so the delay grows to the end."""
    with stub("--chunks", "2", "--first-ms", "190") as url:
        load = await send(url, plan(stream(arrivals={"kind": "constant", "rate": 40.0, "for_s": 1.0})), most=4)
    delays = [record.dispatch_s for record in load.records if record.dispatch_s is not None]
    assert statistics.mean(delays[:10]) + 0.2 < statistics.mean(delays[-10:])
    from_schedule = [(record.answer.done_at or 0) - (record.scheduled_at or 0) for record in load.records]
    assert from_schedule[-1] > 3 * from_schedule[0]
    assert "behind" in behind_sentence(delays)


async def test_a_closed_loop_keeps_its_concurrency_and_has_no_dispatch_delay_but_at_its_start(timed: str) -> None:
    load = await send(timed, plan(stream(arrivals={"kind": "closed", "concurrency": 3, "requests": 9, "think_s": 0.01})))
    events = sorted([(r.answer.sent_at, 1) for r in load.records] + [(r.answer.done_at or 0, -1) for r in load.records])
    levels, level = [], 0
    for _, step in events:
        level += step
        levels.append(level)
    assert max(levels) == 3
    assert sum(record.dispatch_s is not None for record in load.records) == 3
    for record in load.records[3:]:
        before = load.records[record.request.after[0]].answer.done_at
        assert before is not None
        assert record.answer.sent_at - before >= 0.01


async def test_a_closed_loop_ends_at_its_time(timed: str) -> None:
    load = await send(timed, plan(stream(arrivals={"kind": "closed", "concurrency": 1, "requests": 3000, "for_s": 0.3})))
    outcomes = [record.answer.outcome for record in load.records]
    assert outcomes.count(Outcome.OK) >= 1
    assert outcomes[-1] is Outcome.SKIPPED
    assert set(outcomes) == {Outcome.OK, Outcome.SKIPPED}


@pytest.mark.parametrize("leave", [{"seconds": 0.04}, {"tokens": 3}])
async def test_a_client_that_leaves_closes_its_connection_and_keeps_what_it_read(timed: str, leave: dict[str, Any]) -> None:
    load = await send(timed, plan(stream(output=200, cancel_after=leave)))
    (record,) = load.records
    assert record.answer.outcome is Outcome.CANCELLED
    assert record.answer.done_at is None
    assert 1 <= len(record.answer.chunks) < 100
    assert (record.answer.n_generated, record.answer.tokens_from) == (len(record.answer.chunks), "counted")


async def test_a_conversation_ends_where_a_turn_fails_and_the_others_go_on() -> None:
    async with serving(says(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\n", b"later")) as url:
        load = await send(url, plan(stream(turns=3), stream("two", arrivals={"kind": "closed", "concurrency": 1, "requests": 2})))
    outcomes = [(record.request.stream, record.answer.outcome) for record in load.records]
    refused, skipped = Outcome.REFUSED, Outcome.SKIPPED
    assert outcomes == [("one", refused), ("one", skipped), ("one", skipped), ("two", refused), ("two", refused)]


async def test_connections_are_used_again(timed: str) -> None:
    async with Wire(timed) as wire:
        runner = Runner(wire, Native(1, POOL), ClientClock())
        await runner.run(plan(stream(arrivals={"kind": "closed", "concurrency": 1, "requests": 5})))
        assert len(wire._all) == 1


# -- servers that misbehave -------------------------------------------------------------------------------------------

type Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
TOKEN = b'data: {"content":"a","tokens":[1],"stop":false}\n\n'
LAST = b'data: {"content":"","tokens":[],"stop":true,"timings":{"predicted_n":1}}\n\n'


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ask(url: str, limits: Limits | None = None, times: int = 1) -> list[Answer]:
    async with Wire(url, "sesame") as wire:
        request = wire.encode("/completion", b"")
        return [await wire.exchange(request, lambda: Reading(ClientClock().now), limits or Limits(5.0)) for _ in range(times)]


def says(*pieces: bytes, close: bool = False) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if close:
            writer.close()

    return handler


@pytest.mark.parametrize(
    ("pieces", "close", "outcome", "error"),
    [
        ((OK + b"\r\n", TOKEN, LAST), True, Outcome.OK, ""),  # no length: the connection's end is the body's
        ((OK + b"\r\n", TOKEN), True, Outcome.TRUNCATED, "The stream ended before its last event."),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\ndata:\r\n0\r\n\r\n"), False, Outcome.TRUNCATED, "The stream ended"),
        ((OK + b"Content-Length: 999\r\n\r\n", TOKEN), True, Outcome.TRUNCATED, "The stream ended"),
        ((b"HTTP/1.1 401 No\r\nContent-Length: 29\r\n\r\n", b'{"error":{"message":"a key"}}'), False, Outcome.REFUSED, "a key"),
        ((b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\n", b"later"), False, Outcome.REFUSED, "answered 503."),
        ((OK + b"\r\n", b'data: {"error":{"message":"gone"}}\n\n'), False, Outcome.FAILED, "The server reported: gone"),
        ((b"SSH-2.0-OpenSSH\r\n",), True, Outcome.CONNECTION, "The connection failed"),
        ((b"",), True, Outcome.CONNECTION, "The connection failed: the server closed it without an answer."),
        ((b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",), False, Outcome.REFUSED, "answered 302."),
    ],
)  # fmt: skip
async def test_each_ending_has_its_outcome_and_a_sentence(
    pieces: tuple[bytes, ...], close: bool, outcome: Outcome, error: str
) -> None:
    async with serving(says(*pieces, close=close)) as url:
        (answer,) = await ask(url)
    assert answer.outcome is outcome
    assert error in answer.error


async def test_silence_is_an_error_after_its_limit_and_not_before() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            await asyncio.sleep(0.1)
            writer.write(b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
        await reader.read()

    async with serving(slow) as url:
        begun = time.monotonic()
        (answer,) = await ask(url, Limits(silence_s=0.3))
    assert (answer.outcome, answer.error, len(answer.chunks)) == (Outcome.TIMEOUT, "The server sent nothing for 0.3 s.", 4)
    assert 0.65 < time.monotonic() - begun < 4


async def test_a_server_that_keeps_the_body_open_behind_its_last_event_holds_nobody_up() -> None:
    async with serving(says(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n" % (len(LAST), LAST))) as url:
        answers = await asyncio.wait_for(ask(url, times=3), 2)
    assert [answer.outcome for answer in answers] == [Outcome.OK] * 3


async def test_a_kept_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    count = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        if count == 2:
            writer.close()  # it took the request and says nothing: as if it had closed just before
            return
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(LAST) + LAST)

    async with serving(once) as url:
        answers = await ask(url, times=2)
    assert [answer.outcome for answer in answers] == [Outcome.OK] * 2
    assert count == 3


async def test_nobody_listens() -> None:
    (answer,) = await ask("http://127.0.0.1:1")
    assert answer.outcome is Outcome.CONNECTION
    assert answer.error.startswith("The connection failed: ")


async def test_a_stop_closes_the_connections_at_once() -> None:
    closed = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async with serving(never) as url:
        task = asyncio.create_task(ask(url))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait_for(closed.wait(), 1)
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_header_cannot_smuggle_a_line() -> None:
    async def encode() -> bytes:
        async with Wire("http://127.0.0.1:1/base/", "key") as wire:
            return wire.encode("/completion", b"{}", {"X-Client-Label": "a\r\nHost: other"})

    with pytest.raises(ValueError, match="line end"):
        asyncio.run(encode())


async def test_the_request_carries_path_key_and_length() -> None:
    async with Wire("http://[::1]:8/base/", "key") as wire:
        head, _, body = wire.encode("/completion", b"{}", {"X-Client-Label": "chat"}).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/completion HTTP/1.1"
    assert {"Host: [::1]:8", "Authorization: Bearer key", "Content-Length: 2", "X-Client-Label: chat"} < set(lines)
    assert body == b"{}"
