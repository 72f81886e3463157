from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text import TextStream


def play(pieces: Iterable[bytes], stops: Iterable[str] = ()) -> tuple[list[str | None], TextStream]:
    """What each piece released, up to the stop string if there is one."""
    stream = TextStream(tuple(stops))
    released: list[str | None] = []
    for piece in pieces:
        released.append(stream.push(piece))
        if stream.stopped_by:
            break
    return released, stream


def test_a_character_is_released_whole() -> None:
    released, stream = play([b"a", b"\xe4", b"\xbd\xa0", b"b"])
    assert released == ["a", None, "你", "b"]
    assert stream.finish() == ""


def test_text_before_an_unfinished_character_waits_with_it() -> None:
    released, _ = play([b"ab\xc3", b"\xb6c"])
    assert released == [None, "aböc"]


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    _, stream = play([b"ab\xc3"])
    assert stream.finish() == "ab�"
    assert stream.finish() == ""


def test_bytes_that_are_no_text_are_replaced_and_the_rest_goes_on() -> None:
    released, _ = play([b"a\xffb", b"c"])
    assert released == ["a�b", "c"]


def test_a_stop_string_across_pieces_is_never_shown() -> None:
    released, stream = play([b"one", b" <", b"en", b"d> two"], ["<end>"])
    assert released == ["one", None, None, " "]
    assert stream.stopped_by == "<end>"
    assert stream.finish() == ""


def test_what_only_looked_like_a_stop_string_comes_later() -> None:
    released, stream = play([b"a <e", b"nx"], ["<end>"])
    assert released == [None, "a <enx"]
    assert not stream.stopped_by


def test_what_is_held_back_at_the_end_is_given_out() -> None:
    _, stream = play([b"a <en"], ["<end>"])
    assert stream.finish() == "a <en"


def test_the_earliest_stop_string_counts_and_the_first_listed_at_one_place() -> None:
    assert play([b"xx ab"], ["b", "ab"])[1].stopped_by == "ab"
    assert play([b"xx ab"], ["ab", "abc", "a"])[1].stopped_by == "ab"


def test_empty_stop_strings_stop_nothing() -> None:
    released, stream = play([b"a"], [""])
    assert released == ["a"]
    assert not stream.stopped_by


@pytest.mark.parametrize("pieces", [[b"a\nb"], [b"\n"], [b"a\n"]])
def test_new_lines_are_noticed(pieces: list[bytes]) -> None:
    assert play(pieces)[1].has_new_line


@given(st.text(), st.lists(st.integers(0, 60), max_size=8), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_any_split_gives_the_text_up_to_the_first_stop_string(text: str, cuts: list[int], stops: list[str]) -> None:
    raw = text.encode()
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    released, stream = play([raw[a:b] for a, b in pairwise(edges)], stops)
    shown = "".join(part for part in released if part) + stream.finish()
    assert shown == text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
    assert bool(stream.stopped_by) == any(stop in text for stop in stops)
