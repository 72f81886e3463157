"""Policies in files, and what a server takes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduler.policy import FIELDS, Policy, PolicyInvalid, table
from scheduler_api.policies.presets import BUILT_IN
from scheduler_api.policies.values import Named, PolicyFileRefused, exported, fit, imported

OFFERED: dict[str, Any] = {name: spec.as_dict() for name, spec in table(2048).items()}


def test_what_was_exported_is_imported() -> None:
    policy = Named("Nights, “long”", "No one chats.", dict(Policy().as_dict()))
    assert imported(exported(policy).encode()) == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("[1]", "no exported policy"),
        ('{"slotboard_policy": 2, "name": "x", "values": {"phase": "barrier"}}', "no exported policy"),
        ('{"slotboard_policy": 1, "name": "x", "values": {"phase": "barrier"}, "run": "rm"}', "no such field as run"),
        ('{"slotboard_policy": 1, "values": {"phase": "barrier"}}', "has a name"),
        ('{"slotboard_policy": 1, "name": "x", "values": {}}', "at least one"),
        ('{"slotboard_policy": 1, "name": "x", "values": {"phase": ["barrier"]}}', "a word, a number or null"),
        ('{"slotboard_policy": 1, "name": "x", "values": {"a b": 1}}', "no name of a policy field"),
        ('{"slotboard_policy": 1, "name": "x", "values": {"decode_share": NaN}}', "no JSON"),
        ("[" * 100_000, "64 KiB"),
        ("[" * 5_000, "no JSON"),
    ],
)
def test_what_is_no_policy_is_refused_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(PolicyFileRefused) as refusal:
        imported(text.encode())
    assert words in refusal.value.text


def test_fields_that_a_server_does_not_have_are_named() -> None:
    fitted = fit({"phase": "barrier", "warp": 9}, OFFERED)
    assert (fitted.values, fitted.unknown, fitted.problems) == ({"phase": "barrier"}, ("warp",), ())


@pytest.mark.parametrize("key", sorted(BUILT_IN))
def test_built_in_presets_fit_the_engine(key: str) -> None:
    fitted = fit(BUILT_IN[key].values, OFFERED)
    assert (fitted.unknown, fitted.problems) == ((), ())


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5000), st.floats(allow_nan=False), st.sampled_from(["barrier", "fair", "x"])
)


@given(st.sampled_from(sorted(FIELDS)), VALUES)
def test_a_value_fits_exactly_where_the_engine_takes_it(name: str, value: object) -> None:
    try:
        table(2048)[name].parse(name, value)
        taken = True
    except PolicyInvalid:
        taken = False
    assert (fit({name: value}, json.loads(json.dumps(OFFERED))).problems == ()) is taken
