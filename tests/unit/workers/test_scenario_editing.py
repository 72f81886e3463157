"""Changing values of a scenario's text in place: what was not changed stays as it was, comments too."""

from __future__ import annotations

import pytest

from workers.scenarios import ScenarioError, library
from workers.scenarios.editing import change, values
from workers.scenarios.reading import read

TEXT = """# why it is so
name: mine
version: 1
title: Mine  # short
summary: >-
  Two streams
  in two lines.
written_for: 4000
tags:
  - one
  - two
streams:
  - name: chat
    # at random
    arrivals: {kind: poisson, rate: 2, for_s: 10}
    prompt: {tokens: 200}
    output: 32
    slo: {ttft_s: 2}
  - {name: once, arrivals: {kind: at, times: [0, 5]}, prompt: {tokens: 400}, output: 8}
"""


@pytest.mark.parametrize("name", library.names())
def test_changing_nothing_changes_nothing(name: str) -> None:
    text = library.text_of(name)
    assert change(text, values(text)) == text


def test_one_value_is_changed_where_it_stands() -> None:
    changed = change(TEXT, {"streams[0].arrivals.rate": "3.5"})
    assert changed == TEXT.replace("rate: 2,", "rate: 3.5,")
    assert read(changed).streams[0].arrivals.model_dump()["rate"] == 3.5


def test_lists_and_folded_texts_are_changed_whole() -> None:
    changed = change(TEXT, {"tags": "three", "summary": "One line: all of it.", "streams[1].arrivals.times": "1, 2.5"})
    found = read(changed)
    assert found.tags == ["three"]
    assert found.summary == "One line: all of it."
    assert found.streams[1].arrivals.model_dump()["times"] == [1, 2.5]
    assert "# why it is so" in changed
    assert "# at random" in changed


def test_what_is_not_there_is_added_to_its_mapping() -> None:
    asked = {
        "streams[0].slot": "2",
        "streams[0].slo.e2e_s": "9",
        "streams[1].slo.ttft_s": "1",
        "streams[1].slo.itl_s": "0.5",
        "streams[1].client": "bot",
        "scale": "auto",
        "streams[0].client": "",
    }
    found = read(change(TEXT, asked))
    chat, once = found.streams
    assert chat.slot == 2
    assert chat.slo is not None
    assert (chat.slo.ttft_s, chat.slo.e2e_s) == (2, 9)
    assert once.slo is not None
    assert (once.slo.ttft_s, once.slo.itl_s, once.client) == (1, 0.5, "bot")
    assert (found.scale, chat.client) == ("auto", None)


def test_an_emptied_value_is_null_and_an_emptied_text_is_empty() -> None:
    found = read(change(TEXT, {"streams[0].slo.ttft_s": "", "title": ""}))
    assert found.title == ""
    assert found.streams[0].slo is not None
    assert found.streams[0].slo.ttft_s is None


@pytest.mark.parametrize(
    "wild", ["a: b", "{x", "# no", "'", '"', "- a", "&a", "*a", "true", "12", "a, b]", "ä\u2028b", "!!int 3"]
)
def test_any_text_comes_back_as_it_was_typed(wild: str) -> None:
    assert read(change(TEXT, {"title": wild})).title == wild
    assert read(change(TEXT, {"streams[1].client": wild})).streams[1].client == wild


def test_what_is_no_number_is_refused_with_its_place() -> None:
    with pytest.raises(ScenarioError) as caught:
        read(change(TEXT, {"streams[0].prompt.tokens": "many, and more"}))
    (fault,) = caught.value.faults
    assert (fault.field, fault.line) == ("streams[0].prompt.tokens", 16)


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: " + "9" * 5000, "d: 2024-99-99", "a: [1", "\ta: 1", "x: *a", "- 1", "", "a: 1\na: 2"]
)
def test_what_cannot_be_read_is_told_with_a_line(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(text)
    assert caught.value.faults
    assert all(fault.line >= 1 and fault.text for fault in caught.value.faults)
