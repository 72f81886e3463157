"""A conflict between two changes of one policy: what both began from, what stands now, and what is wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.first_view import words
from dashboard.policy_words import TITLES
from scheduler_api.policies.values import Json


@dataclass(frozen=True, slots=True)
class Row:
    """One field that either side changed. `choose`: both want something else, or only mine does; theirs alone stays by itself."""

    name: str
    title: str
    base: str
    theirs: str
    mine: str
    their_value: str
    my_value: str
    by_them: bool
    by_me: bool

    @property
    def choose(self) -> bool:
        return self.by_me and self.theirs != self.mine


def rows(base: Json, theirs: Json, mine: Mapping[str, Any]) -> list[Row]:
    """`base` and `theirs`: whole requested policies; `mine`: the fields that were to be set."""
    names = [name for name in theirs if name in mine or base.get(name, theirs[name]) != theirs[name]]
    return [
        _row(name, base.get(name, theirs[name]), theirs[name], mine.get(name, base.get(name)), name in mine) for name in names
    ]


def _row(name: str, base: Any, theirs: Any, mine: Any, by_me: bool) -> Row:
    return Row(
        name=name,
        title=TITLES.get(name, words(name).capitalize()),
        base=words(base),
        theirs=words(theirs),
        mine=words(mine),
        their_value=as_input(theirs),
        my_value=as_input(mine),
        by_them=base != theirs,
        by_me=by_me,
    )


def as_input(value: Any) -> str:
    """As the form's field holds it: empty for off."""
    return "" if value is None else str(value)
