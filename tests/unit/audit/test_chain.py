"""The chain: whatever is edited, taken out, put in or moved breaks it, at its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_api.audit.chain import GENESIS, Broken, Content, Head, Link, canonical, check, digest

TEXT = st.text(max_size=8)
NUMBER = st.none() | st.integers(0, 9)


def content(seq: int, words: tuple[str, ...] = (), ids: tuple[int | None, int | None] = (None, None)) -> Content:
    said = dict(zip(("actor_name", "address", "action", "subject", "before", "after", "why"), words, strict=False))
    empty = dict.fromkeys(
        ("actor_name", "through", "address", "action", "subject", "server_name", "ref", "before", "after", "why"), ""
    )
    return Content(
        seq=seq, at="2026-01-01T00:00:00.000000+00:00", actor_id=ids[0], server_id=ids[1], outcome="done", **(empty | said)
    )


def chained(contents: list[Content]) -> list[Link]:
    links: list[Link] = []
    for each in contents:
        previous = links[-1].hash if links else GENESIS
        links.append(Link(each, previous, digest(each, previous)))
    return links


CHAINS = st.lists(
    st.tuples(st.tuples(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT), st.tuples(NUMBER, NUMBER)), min_size=1, max_size=8
).map(lambda rows: chained([content(place + 1, *row) for place, row in enumerate(rows)]))


@settings(max_examples=40)
@given(CHAINS)
def test_a_chain_as_it_was_written_is_whole(links: list[Link]) -> None:
    assert check(links) == Head(len(links), links[-1].hash)


@settings(max_examples=40)
@given(CHAINS, st.data())
def test_an_edited_field_breaks_it_at_its_row(links: list[Link], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(links) - 1))
    name = data.draw(
        st.sampled_from(["at", "actor_name", "address", "action", "subject", "before", "after", "why", "outcome", "ref"])
    )
    old = links[at]
    other: Any = {name: data.draw(TEXT.filter(lambda text: text != getattr(old.content, name)))}
    changed = replace(old.content, **other)
    edited = [*links[:at], replace(old, content=changed), *links[at + 1 :]]
    assert check(edited) == Broken(at + 1, "its content is not what was written")


@settings(max_examples=40)
@given(CHAINS.filter(lambda links: len(links) > 1), st.data())
def test_a_row_taken_out_or_moved_breaks_it(links: list[Link], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(links) - 2))
    without = check([*links[:at], *links[at + 1 :]])
    assert isinstance(without, Broken)
    assert without.seq == at + 2
    swapped = [*links[:at], links[at + 1], links[at], *links[at + 2 :]]
    assert isinstance(check(swapped), Broken)


@settings(max_examples=40)
@given(CHAINS, st.data())
def test_an_edit_with_a_hash_made_anew_breaks_it_at_the_next_row(links: list[Link], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(links) - 1))
    changed = replace(links[at].content, why=links[at].content.why + "!")
    forged = replace(links[at], content=changed, hash=digest(changed, links[at].previous))
    found = check([*links[:at], forged, *links[at + 1 :]])
    if at == len(links) - 1:
        assert found == Head(len(links), forged.hash)  # only a head noted elsewhere tells
        assert found != check(links)
    else:
        assert found == Broken(at + 2, "it does not follow from the row before it")


def test_what_is_hashed_is_written_down() -> None:
    """A trail that was written by an earlier version has to verify for ever."""
    one = replace(content(1, ("mira",)), server_id=3)
    assert canonical({"b": 1, "a": [None, True, "ü"]}) == '{"a":[null,true,"ü"],"b":1}'
    assert digest(one, GENESIS) == "5909e5664dc6b83d98e3ec27675cb54d13d47fd3f7bdbc99170256d491cede9a"
