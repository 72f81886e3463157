"""Streams as they were seen in the field, byte for byte where they went wrong for others; each name is the symptom."""

from __future__ import annotations

import pytest

from tests.unit.workers.test_reading import DONE, Ticks, event, read
from workers.load.reading import Outcome, Reading, StreamRefused

MINUS_ONE = (
    b'data: {"index":0,"content":" do","tokens":[1279],"stop":false,"id_slot":-1,"tokens_predicted":2,"tokens_evaluated":6}\n\n'
)
LAST = b'data: {"index":0,"content":"","tokens":[],"stop":true,"id_slot":-1,"tokens_predicted":2,"tokens_evaluated":6}\n\n'
ROLE = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"model":"m"}\n\n'
THOUGHT = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"Okay"}}]}\n\n'
THOUGHT_ELSEWHERE = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning":"Okay"}}]}\n\n'
EMPTY = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":""}}]}\n\n'
HI = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}]}\n\n'
STOP = b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}\n\n'
LAST_WITH_TIMINGS = (
    b'data: {"choices":[],"usage":null,"timings":{"cache_n":236,"prompt_n":1,"predicted_n":35,"predicted_ms":661.06}}\n\n'
)
END = event(DONE)


def test_a_slot_id_of_minus_one_is_no_index_and_no_token_count() -> None:
    answer = read([MINUS_ONE, MINUS_ONE, LAST])
    assert (answer.outcome, answer.n_generated, answer.tokens_from, answer.n_prompt) == (Outcome.OK, 2, "server", 6)


def test_a_stream_without_usage_is_counted_by_its_timings_else_by_its_events_and_never_zero() -> None:
    assert (read([HI, STOP, LAST_WITH_TIMINGS, END]).n_generated, read([HI, LAST_WITH_TIMINGS, END]).tokens_from) == (
        35,
        "timings",
    )
    counted = read([HI, HI, STOP, END])
    assert (counted.n_generated, counted.tokens_from) == (2, "counted")
    nothing = read([ROLE, STOP, END])
    assert (nothing.n_generated, nothing.tokens_from) == (None, "")


def test_cached_tokens_come_from_the_timings_where_usage_has_none() -> None:
    answer = read([HI, STOP, LAST_WITH_TIMINGS, END])
    assert (answer.n_cached, answer.n_prompt) == (236, 237)


@pytest.mark.parametrize("thought", [THOUGHT, THOUGHT_ELSEWHERE])
def test_ttft_is_stopped_by_reasoning_and_not_by_the_role_or_an_empty_piece(thought: bytes) -> None:
    answer = read([ROLE, EMPTY, thought, HI, STOP, END])  # pieces are read at 2, 3, 4, ...
    assert (answer.first_byte_at, answer.first_token_at, answer.first_content_at) == (2, 4, 5)


def test_the_first_token_is_told_once_and_at_once() -> None:
    told: list[float] = []
    reading = Reading(Ticks(), on_first=told.append)
    reading.headers(200, "text/event-stream")
    for piece in (ROLE, THOUGHT, HI):
        reading.take(piece)
    assert told == [3.0]  # sent at 0, headers at 1, the role at 2


def test_a_character_cut_in_two_writes_is_whole() -> None:
    cut = [b'data: {"choices":[{"index":0,"delta":{"content":"\xe4', b'\xbd\xa0"}}]}\n\n', STOP, END]
    answer = read(cut, keep=True)
    assert (answer.text, answer.first_token_at) == ("你", 3)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("space", [b"", b" "])
def test_line_ends_of_every_kind_and_no_space_after_the_colon(end: bytes, space: bytes) -> None:
    lines = [b"data:" + space + piece.removeprefix(b"data: ").strip() + end + end for piece in (HI, STOP, END)]
    assert read(lines, keep=True).text == "Hi"
    assert read([b"".join(lines)[place : place + 1] for place in range(sum(map(len, lines)))], keep=True).text == "Hi"


def test_comments_that_keep_a_connection_open_are_nothing() -> None:
    answer = read([b": ping\n\n", HI, b": ping\n\n", STOP, END])
    assert (answer.outcome, len(answer.chunks), answer.first_token_at) == (Outcome.OK, 1, 3)


@pytest.mark.parametrize("pieces", [[HI], [HI, HI[:20]], [ROLE], []])
def test_a_stream_that_is_cut_off_under_status_200_is_an_error(pieces: list[bytes]) -> None:
    assert read(pieces).outcome is Outcome.TRUNCATED


def test_bytes_that_are_no_text_end_the_answer_as_failed_and_not_as_a_short_one() -> None:
    with pytest.raises(StreamRefused, match="not JSON"):
        read([HI, b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n', STOP, END])


@pytest.mark.parametrize(
    "body",
    [b'{"object":"error","message":"no such model","code":404}', b'{"detail":"no such model"}', b'{"error":"no such model"}'],
)
def test_errors_in_forms_of_their_own_are_read_too(body: bytes) -> None:
    with pytest.raises(StreamRefused, match="The server answered 404: no such model"):
        read([body], status=404, kind="application/json")


def test_a_server_that_still_loads_is_refused_in_its_own_words() -> None:
    body = b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'
    with pytest.raises(StreamRefused, match="The server answered 503: Loading model"):
        read([body], status=503, kind="application/json")
