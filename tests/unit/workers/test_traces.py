from __future__ import annotations

import pytest

from workers.load.traces import Row, TraceError, read

MOONCAKE = [
    '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}',
    "",
    '{"timestamp": 28482, "input_length": 10, "output_length": 3}',
]
BURSTGPT = [
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "5,ChatGPT,472,18,490,Conversation log",
    "45,ChatGPT,100,0,100,Conversation log",  # a failed one
    "118,GPT-4,1087,230,1317,API log",
]
AZURE = [
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
    "2024-05-10 00:00:00.009930+00:00,2162,5",
]


def test_mooncake_counts_milliseconds_and_names_blocks() -> None:
    assert read(MOONCAKE, "mooncake", 10) == [Row(0, 6955, 52, (46, 47)), Row(1, 10, 3)]


def test_burstgpt_counts_seconds_and_leaves_failed_requests_out() -> None:
    assert read(BURSTGPT, "burstgpt", 10) == [Row(0, 472, 18), Row(113, 1087, 230)]


def test_azure_has_dates_with_seven_digits_or_a_zone() -> None:
    rows = read(AZURE, "azure", 10)
    assert [(row.prompt, row.output) for row in rows] == [(374, 44), (396, 109), (2162, 5)]
    assert rows[1].at_s == pytest.approx(4.314579, abs=1e-5)


def test_a_limit_is_kept_and_rows_are_sorted_by_time() -> None:
    turned = [BURSTGPT[0], BURSTGPT[3], BURSTGPT[1]]
    assert [row.prompt for row in read(turned, "burstgpt", 2)] == [472, 1087]
    assert len(read(BURSTGPT, "burstgpt", 1)) == 1


@pytest.mark.parametrize(
    ("lines", "form", "sentence"),
    [
        (['{"timestamp": 1}'], "mooncake", "Line 1 of the trace is not Mooncake's form: 'input_length' is missing"),
        (["", "x"], "mooncake", "Line 2 of the trace is not Mooncake's form"),
        (["[1]"], "mooncake", "Line 1 of the trace is not Mooncake's form"),
        (["a,b", "1,2"], "burstgpt", "Line 2 of the trace is not BurstGPT's form: 'Timestamp' is missing"),
        ([AZURE[0], "yesterday,1,2"], "azure", "Line 2 of the trace is not Azure's form"),
        ([BURSTGPT[0]], "burstgpt", "no row with a prompt and an answer"),
    ],
)
def test_a_line_of_another_form_is_named(lines: list[str], form: str, sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence):
        read(lines, form, 10)
