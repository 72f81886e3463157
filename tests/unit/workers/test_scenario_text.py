"""What is said of a scenario's YAML: the line, the field, what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.scenarios import ScenarioError, library
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario

GOOD = """name: mine
version: 1
title: Mine
summary: One stream.
written_for: 4000
streams:
  - name: chat
    arrivals: {kind: poisson, rate: 2, for_s: 10}
    prompt:
      tokens: {lognormal: {median: 200, sigma: 0.5}}
    output: 32
    slot: 0
"""


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        read(text, "mine.yaml")
    return str(caught.value)


def test_a_good_one_is_read() -> None:
    assert read(GOOD).streams[0].name == "chat"


def test_every_scenario_of_the_library_is_read_and_names_its_files() -> None:
    names = library.names()
    assert {"warm-behind-cold", "victim-and-attacker", "saturation", "cancel-storm", "trace-mooncake"} < set(names)
    for name in names:
        found = library.find(name)
        assert found.name == name
        if isinstance(found, LoadScenario):
            assert all(library.files_of(found).values())
            assert found.arms.a != found.arms.b


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("rate: 2", "rate: 0", "mine.yaml, line 8: streams[0].arrivals.rate must be greater than 0, not 0."),
        (
            "rate: 2",
            "rat: 2",
            "mine.yaml, line 8: streams[0].arrivals.rat is unknown; known here are start_s, kind, rate, for_s.",
        ),
        (
            "kind: poisson",
            "kind: fast",
            "line 8: streams[0].arrivals has an unknown kind 'fast'; allowed are 'at', 'closed', 'constant'",
        ),
        ("kind: poisson, ", "", "mine.yaml, line 8: streams[0].arrivals needs a kind."),
        (
            "sigma: 0.5",
            "sigma: 9",
            "mine.yaml, line 10: streams[0].prompt.tokens.lognormal.sigma must be less than or equal to 4, not 9.",
        ),
        ("output: 32", "output: many", "line 11: streams[0].output must be a whole number, or one of: range, lognormal"),
        ("    output: 32\n", "", "mine.yaml, line 7: streams[0] needs prompt and output, unless its arrivals are a trace"),
        ("slot: 0", "slot: true", "mine.yaml, line 12: streams[0].slot must be a valid integer, not True."),
        ("name: chat", "name: Chat room", "line 7: streams[0].name must be lower-case letters, digits and hyphens"),
        ("version: 1\n", "", "mine.yaml, line 1: version is missing."),
        ("written_for: 4000", "written_for: .nan", "line 5: written_for must be a finite number, not nan."),
        ("version: 1", "version: 1\nversion: 2", "mine.yaml, line 3: version stands there twice."),
        ("streams:", "streams: [", "mine.yaml, line 7: not YAML: "),
        ("title: Mine", "title: &a Mine\nsummary: *a", "mine.yaml, line 4: references (*a) are not taken here."),
        ("slot: 0", "cancel_after: {seconds: 1, tokens: 2}", "line 12: streams[0].cancel_after needs either seconds or tokens."),
    ],
)
def test_a_fault_has_its_line_its_field_and_what_is_allowed(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    assert sentence in refused(GOOD.replace(old, new, 1))


def test_several_faults_have_a_line_each() -> None:
    told = refused(GOOD.replace("version: 1", "version: 0").replace("slot: 0", "slot: -1")).splitlines()
    assert [line.partition(":")[0] for line in told] == ["mine.yaml, line 2", "mine.yaml, line 12"]


@pytest.mark.parametrize("text", ["", "- a\n", "just words", "3"])
def test_something_else_than_a_mapping_is_refused(text: str) -> None:
    assert refused(text) == "mine.yaml, line 1: a scenario must be a mapping of names to values."


def test_two_streams_of_one_name_are_refused() -> None:
    twice = GOOD + GOOD[GOOD.index("  - name") :]
    assert refused(twice) == "mine.yaml, line 1: the scenario has two streams named chat."


@pytest.mark.parametrize("name", ["../secret", "a/b", "/etc/passwd", ".hidden", "missing.csv"])
def test_files_are_plain_names_in_known_folders(name: str, tmp_path: Path) -> None:
    traced = read(
        f"name: x\nversion: 1\ntitle: t\nsummary: s\nwritten_for: 1\nstreams:\n"
        f"  - {{name: a, arrivals: {{kind: trace, format: azure, file: {name}}}}}\n"
    )
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ScenarioError, match=r"plain name|in none of the folders"):
        library.files_of(traced, (tmp_path,))
