from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.load.client import Answer, complete, make_ask, make_client
from workers.load.clock import ClientClock
from workers.load.timing import durations

TIMINGS = {
    "cache_n": 40_000,
    "prompt_n": 1500,
    "prompt_ms": 800.0,
    "predicted_ms": 0.0,
    "queue_ms": 5.0,
    "wait_ms": 95.0,
    "hold_ms": 0.0,
}
FIRST = {"index": 0, "content": "über 🙂", "tokens": [77], "stop": False}
LAST = {"index": 0, "content": "", "tokens": [], "stop": True, "timings": TIMINGS}


def event(message: Any, end: str = "\n") -> bytes:
    return f"data: {json.dumps(message, ensure_ascii=False)}{end}{end}".encode()


class FakeStream(httpx2.AsyncByteStream):
    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            await asyncio.sleep(0)
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


def run(chunks: list[bytes], status: int = 200) -> tuple[Answer, FakeStream]:
    stream = FakeStream(chunks)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=stream))

    async def send() -> Answer:
        async with make_client("http://127.0.0.1:1", transport=transport) as client:
            return await complete(client, make_ask("short", 1, [301, 302], 1), ClientClock())

    return asyncio.run(send()), stream


def test_whole_answer_has_every_time_in_order_and_the_server_timings() -> None:
    answer, stream = run([event(FIRST), event(LAST)])
    assert answer.error == ""
    assert answer.timings == TIMINGS
    assert answer.first_byte_at is not None
    assert answer.first_token_at is not None
    assert answer.done_at is not None
    assert answer.sent_at <= answer.first_byte_at <= answer.first_token_at <= answer.done_at
    assert stream.closed


@given(st.lists(st.integers(0, 400), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_chunks_may_be_cut_anywhere(cuts: list[int], end: str) -> None:
    whole = b": a comment" + end.encode() * 2 + event(FIRST, end) + event(LAST, end)
    edges = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    answer, _ = run([whole[a:b] for a, b in pairwise(edges)])
    assert answer.error == ""
    assert answer.timings == TIMINGS


def test_every_single_byte_a_chunk() -> None:
    whole = event(FIRST, "\r\n") + event(LAST, "\r\n")
    answer, _ = run([whole[i : i + 1] for i in range(len(whole))])
    assert answer.done_at is not None


@pytest.mark.parametrize("chunks", [[], [event(FIRST)], [event(FIRST), event(LAST)[:-1]], [event(FIRST), event(LAST)[:20]]])
def test_a_stream_cut_short_is_an_error(chunks: list[bytes]) -> None:
    answer, _ = run(chunks)
    assert answer.error == "The stream ended before its last event."
    assert answer.done_at is None


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        ([event({"error": {"code": 500, "message": "out of room"}})], "The server reported: out of room"),
        ([b"data: {not json}\n\n"], "The stream holds an event that is not JSON."),
        ([b"data: [1]\n\n"], "The stream holds an event that is not a JSON object."),
    ],
)  # fmt: skip
def test_errors_inside_the_stream(chunks: list[bytes], error: str) -> None:
    answer, _ = run(chunks)
    assert answer.error == error


def test_a_refusal_carries_the_servers_reason() -> None:
    answer, _ = run([b'{"error": {"code": 400, "mess', b'age": "prompt too long"}}'], status=400)
    assert answer.error == "The server answered 400: prompt too long"
    assert answer.first_token_at is None


def test_a_refusal_without_json_has_its_status() -> None:
    answer, _ = run([b"<html>bad gateway</html>"], status=502)
    assert answer.error == "The server answered 502."


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (httpx2.ConnectError("refused"), "The connection failed: refused."),
        (httpx2.ReadTimeout("late"), "The server sent nothing for 600 s."),
    ],
)
def test_transport_errors_become_a_sentence(raised: Exception, error: str) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise raised

    async def send() -> Answer:
        async with make_client("http://127.0.0.1:1", transport=httpx2.MockTransport(fail)) as client:
            return await complete(client, make_ask("cold", 0, [301], 1), ClientClock())

    assert asyncio.run(send()).error == error


def test_the_request_asks_for_its_slot_and_a_stream() -> None:
    body = json.loads(make_ask("short", 1, [301, 302], 1).body)
    assert (body["prompt"], body["id_slot"], body["n_predict"], body["stream"], body["cache_prompt"]) == (
        [301, 302],
        1,
        1,
        True,
        True,
    )


def test_the_key_is_sent_as_a_bearer() -> None:
    seen: list[str] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("authorization", ""))
        return httpx2.Response(200, stream=FakeStream([event(LAST)]))

    async def send() -> None:
        async with make_client("http://127.0.0.1:1", "sesame", transport=httpx2.MockTransport(note)) as client:
            await complete(client, make_ask("cold", 0, [301], 1), ClientClock())

    asyncio.run(send())
    assert seen == ["Bearer sesame"]


def make_answer(**timings: Any) -> Answer:
    return Answer(100.0, 100.4, 101.1, 101.2, timings)


def test_wait_comes_from_the_servers_queue_and_wait_times() -> None:
    found = durations(make_answer(**TIMINGS))
    assert found.wait_s == pytest.approx(0.1)
    assert found.prompt_s == pytest.approx(0.8)
    assert found.wall_s == pytest.approx(1.2)
    assert found.ttft_s == pytest.approx(1.1)
    assert (found.n_prompt, found.n_cached) == (41_500, 40_000)


def test_wait_is_what_is_left_of_the_wall_time_when_the_server_does_not_report_it() -> None:
    found = durations(make_answer(prompt_ms=800.0, predicted_ms=100.0, queue_ms=5.0))
    assert found.wait_s == pytest.approx(0.3)
    assert found.hold_s is None


def test_a_barriers_hold_stands_apart_from_the_wait() -> None:
    found = durations(make_answer(**{**TIMINGS, "hold_ms": 300.0}))
    assert found.hold_s == pytest.approx(0.3)
    assert found.wait_s == pytest.approx(0.1)


def test_a_request_without_an_end_has_no_durations() -> None:
    found = durations(Answer(100.0, error="The stream ended before its last event."))
    assert (found.wall_s, found.wait_s, found.prompt_s, found.ttft_s, found.n_prompt) == (None, None, None, None, None)
