"""What servers send, cut, wrong or NaN: parsers of events, metrics and JSON."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api import strict_json
from scheduler_api.kinds.fields import count, number
from scheduler_api.kinds.llama_metrics import parse_metrics
from scheduler_api.kinds.sse import Event, EventParser, EventTooLarge

STREAM = "\r\n".join(
    [": alive", "", "event: update", "id: 4", 'data: {"a":', "data:1}", "", "data: größer", "", "id: 9", "", ""]
).encode()
EVENTS = [Event("update", '{"a":\n1}', "4"), Event("message", "größer", "4")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from([b"\r\n", b"\n", b"\r"]))
def test_events_are_the_same_wherever_the_stream_is_cut(cuts: list[int], line_end: bytes) -> None:
    parser = EventParser()
    stream = STREAM.replace(b"\r\n", line_end) + b": end\n"
    edges = [0, *sorted(cuts), len(stream)]
    found = [event for begin, end in pairwise(edges) for event in parser.feed(stream[begin:end])]
    assert found == EVENTS
    assert parser.last_id == "9"


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: xxxxx\n" * 20])
def test_an_event_without_end_is_given_up(stream: bytes) -> None:
    with pytest.raises(EventTooLarge):
        EventParser(cap=64).feed(stream)


METRICS = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 9000
llamacpp:tokens_predicted_total 1.5e3
llamacpp:requests_processing 0
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode -nan
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 7
nonsense
"""


def test_case_12_metrics_are_read_by_the_names_of_their_versions() -> None:
    found = parse_metrics(METRICS, "1700000000")
    assert (found.prompt_tokens, found.generated_tokens, found.processing, found.deferred) == (9000, 1500, 0, 2)
    assert found.working is True
    assert found.kv_used is None  # this version does not export it, which is not zero


@pytest.mark.parametrize("value", ["-nan", "NaN", "+Inf", "x"])
def test_case_14_a_metric_that_is_no_number_is_unknown(value: str) -> None:
    assert parse_metrics(f"llamacpp:requests_processing {value}").working is None


@pytest.mark.parametrize(
    ("text", "start", "restarted"),
    [
        ("llamacpp:prompt_tokens_total 12", "", True),
        ("llamacpp:prompt_tokens_total 9001", "", False),
        ("", "", False),
        ("llamacpp:prompt_tokens_total 9001", "1700000001", True),
        ("llamacpp:prompt_tokens_total -nan", "1700000000", False),
    ],
)
def test_case_16_a_restart_shows_in_counters_and_in_the_start_time(text: str, start: str, restarted: bool) -> None:
    assert parse_metrics(text, start).restarted_since(parse_metrics(METRICS, "1700000000")) is restarted


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[NaN, 1e999, 123456789012345678901234567890]"])
def test_case_14_what_json_cannot_say_never_comes_out(text: str) -> None:
    out = strict_json.dumps(strict_json.loads(text))
    json.loads(out, parse_constant=lambda name: pytest.fail(name))


def test_numbers_of_our_own_that_are_none_come_out_as_null() -> None:
    assert strict_json.dumps({"rate": math.nan, "worst": math.inf}) == '{"rate":null,"worst":null}'


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        strict_json.loads("[" * 100_000)


@pytest.mark.parametrize(
    ("value", "whole"), [(3, 3), (3.9, 3), (-1, None), (True, None), ("3", None), (None, None), (math.nan, None)]
)
def test_counts(value: Any, whole: int | None) -> None:
    assert count(value) == whole


def test_a_bool_is_no_number() -> None:
    assert number(True) is None
