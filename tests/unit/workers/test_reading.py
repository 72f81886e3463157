"""Answers as servers in the field send them: which moments count, who says how many tokens there were."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.kinds.sse import EventParser
from workers.load.reading import Answer, Outcome, Reading, StreamRefused

ROLE = {"choices": [{"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}]}
EMPTY = {"choices": [{"finish_reason": None, "index": 0, "delta": {"content": ""}}]}
REASONING = {"choices": [{"finish_reason": None, "index": 0, "delta": {"reasoning_content": "Okay"}}]}
REASONING_VLLM = {"choices": [{"finish_reason": None, "index": 0, "delta": {"reasoning": "Okay"}}]}
HI = {"choices": [{"finish_reason": None, "index": 0, "delta": {"content": "Hi 你"}}]}
STOP = {"choices": [{"finish_reason": "stop", "index": 0, "delta": {}}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 34, "prompt_tokens_details": {"cached_tokens": 5}}}
TIMINGS = {"choices": [], "timings": {"cache_n": 236, "prompt_n": 1, "predicted_n": 35, "predicted_ms": 661.06}}
DONE = "[DONE]"


def event(message: Any, line_end: str = "\n", space: str = " ") -> bytes:
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return f"data:{space}{text}{line_end}{line_end}".encode()


class Ticks:
    """A clock that says 0, 1, 2 ...: one more at each look."""

    def __init__(self) -> None:
        self.at = -1.0

    def __call__(self) -> float:
        self.at += 1.0
        return self.at


def read(pieces: list[bytes], status: int = 200, kind: str = "text/event-stream", *, keep: bool = False) -> Answer:
    """sent at 0, headers at 1, the n-th piece at 1 + n."""
    reading = Reading(Ticks(), keep=keep)
    reading.headers(status, kind)
    for piece in pieces:
        reading.take(piece)
    reading.end()
    return reading.answer()


def test_the_role_chunk_stops_no_clock_and_reasoning_stops_one_of_two() -> None:
    answer = read([event(ROLE), event(EMPTY), event(REASONING), event(HI), event(STOP), event(DONE)])
    assert (answer.sent_at, answer.headers_at, answer.first_byte_at) == (0, 1, 2)
    assert (answer.first_token_at, answer.first_content_at, answer.last_token_at, answer.done_at) == (4, 5, 5, 7)
    assert list(answer.chunks) == [4, 5]
    assert read([event(REASONING_VLLM), event(DONE)]).first_token_at == 2


def test_a_tool_call_is_a_token_of_some_kind() -> None:
    call = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]}
    answer = read([event(call), event(DONE)])
    assert (answer.first_token_at, answer.first_content_at) == (2, None)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([USAGE], (34, "usage", 12, 5)),
        ([TIMINGS], (35, "timings", 237, 236)),
        ([TIMINGS, USAGE], (34, "usage", 12, 5)),
        ([], (2, "counted", None, None)),
    ],
)
def test_tokens_come_from_usage_then_timings_then_counting_and_it_says_which(last: list[Any], expected: tuple[Any, ...]) -> None:
    answer = read([event(each) for each in (ROLE, REASONING, HI, STOP, *last, DONE)])
    assert (answer.n_generated, answer.tokens_from, answer.n_prompt, answer.n_cached) == expected


def test_a_native_stream_counts_its_tokens_and_keeps_its_totals() -> None:
    pieces = [{"content": "a", "tokens": [7], "stop": False}, {"content": "", "tokens": [8, 9], "stop": False}]
    last = {"content": "", "tokens": [], "stop": True, "tokens_predicted": 3, "tokens_evaluated": 6, "id_slot": -1}
    answer = read([event(each) for each in (*pieces, last)], keep=True)
    assert (answer.n_generated, answer.tokens_from, answer.n_prompt, answer.tokens) == (3, "server", 6, (7, 8, 9))
    assert (answer.first_token_at, answer.first_content_at, answer.chunks, answer.done_at) == (2, 2, (2, 3), 4)


def test_progress_is_no_token() -> None:
    progress = {"content": "", "tokens": [], "stop": False, "prompt_progress": {"total": 9, "processed": 4}}
    answer = read([event(progress), event({"content": "a", "tokens": [1], "stop": False}), event({"content": "", "stop": True})])
    assert answer.first_token_at == 3


@given(st.lists(st.integers(0, 2000), max_size=20), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", " "]))
def test_pieces_may_be_cut_anywhere_within_a_character_too(cuts: list[int], line_end: str, space: str) -> None:
    whole = b"".join(event(each, line_end, space) for each in (ROLE, HI, HI, STOP, USAGE, DONE))
    edges = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    answer = read([whole[a:b] for a, b in pairwise(edges)], keep=True)
    assert (answer.outcome, answer.text, answer.n_generated, len(answer.chunks)) == (Outcome.OK, "Hi 你Hi 你", 34, 2)


def test_a_stream_without_its_end_mark_is_whole_once_it_said_why_it_ended() -> None:
    assert read([event(HI), event(STOP)]).outcome is Outcome.OK
    cut = read([event(HI)])
    assert (cut.outcome, cut.error, cut.done_at) == (Outcome.TRUNCATED, "The stream ended before its last event.", None)
    assert read([]).outcome is Outcome.TRUNCATED


def test_what_follows_the_end_mark_is_not_read() -> None:
    assert read([event(HI) + event(DONE) + event({"error": "late"})]).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (event({"error": {"code": 500, "message": "out of room"}}), "The server reported: out of room"),
        (b"data: {bad\n\n", "The stream holds an event that is not JSON."),
        (b"data: 3\n\n", "The stream holds an event that is not a JSON object."),
    ],
)
def test_an_error_inside_a_stream_with_status_200(body: bytes, sentence: str) -> None:
    with pytest.raises(StreamRefused, match=sentence):
        read([body])


def test_a_whole_body_has_an_end_and_no_first_token() -> None:
    native = json.dumps(
        {"content": "ab", "tokens": [1, 2], "stop": True, "timings": {"predicted_n": 2, "prompt_n": 4, "cache_n": 1}}
    )
    answer = read([native.encode()], kind="application/json; charset=utf-8", keep=True)
    assert (answer.first_token_at, answer.done_at, answer.n_generated, answer.n_prompt, answer.text) == (None, 3, 2, 5, "ab")
    chat = json.dumps({"choices": [{"message": {"content": "yes"}}], "usage": {"completion_tokens": 1}})
    assert read([chat.encode()], kind="application/json", keep=True).text == "yes"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"error": {"message": "Invalid API Key"}}', "answered 401: Invalid API Key"),
        (b"<html>", "answered 401."),
        (b"", "answered 401."),
    ],
)
def test_another_status_is_refused_with_the_servers_reason(body: bytes, sentence: str) -> None:
    with pytest.raises(StreamRefused, match=sentence):
        read([body], status=401, kind="application/json")


LINES = st.sampled_from(["data: a", "data:b", "data", ": note", "event: x", "id: 4", "", "", "data: é", "retry: 1", "dat"])


@given(st.lists(LINES, max_size=12), st.lists(st.integers(0, 200), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_the_quick_way_through_events_gives_the_same_data(lines: list[str], cuts: list[int], line_end: str) -> None:
    whole = "".join(line + line_end for line in lines).encode()
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    slow, quick = EventParser(), EventParser()
    for a, b in pairwise(edges):
        expected = [event.data for event in slow.feed(whole[a:b])]
        assert [data.decode() if isinstance(data, bytes) else data for data in quick.feed_data(whole[a:b])] == expected
