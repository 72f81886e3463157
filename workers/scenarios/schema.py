"""The form of a scenario file, checked once when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
SCALE_MIN, SCALE_MAX = 0.005, 20.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: `line` counts from 1; `field` is its dotted path, "" for the whole; `text` begins with it."""

    line: int
    field: str
    text: str


class ScenarioError(Exception):
    """The file is missing or says something else than a scenario; the message is one sentence for the operator.

    `faults` has all that is wrong with a text where the places are known, also those that the message leaves out.
    """

    def __init__(self, text: str, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(text)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Prompt:
    """`tokens` new ones after `depth` tokens that the slot's cache already holds."""

    slot: int
    depth: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """A scenario's prompts at one scale, in tokens."""

    cold: int
    depth: int
    short: int
    n_predict: int

    @property
    def context_needed(self) -> int:
        """Cells that the fuller of the two slots must have: its prompt, what is generated, and one that servers keep free."""
        return max(self.cold, self.depth + self.short) + self.n_predict + 1

    @property
    def computed(self) -> int:
        """Prompt tokens that one block computes when the cache is warm."""
        return self.cold + self.short


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    version: int
    title: str
    summary: str
    cold: Prompt
    short: Prompt
    n_predict: int
    share: float  # of the cold request's time alone, after which the short one is sent
    tags: tuple[str, ...] = ()

    def sizes(self, scale: float) -> Sizes:
        """At least 16 tokens each, so that a tiny scale still has something to schedule."""
        if not SCALE_MIN <= scale <= SCALE_MAX:
            raise ScenarioError(f"The scale {scale:g} is outside {SCALE_MIN:g} to {SCALE_MAX:g}.")
        cold, depth, short = (
            max(16, round(tokens * scale)) for tokens in (self.cold.tokens, self.short.depth, self.short.tokens)
        )
        return Sizes(cold, depth, short, self.n_predict)


def names() -> list[str]:
    """Of the scenarios that the product brings along."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


@cache
def load(name: str) -> Scenario:
    """Raises ScenarioError."""
    if name not in names():
        raise ScenarioError(f"There is no scenario {name!r}; known are {', '.join(names())}.")
    return parse(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")), name)


def parse(content: Any, name: str) -> Scenario:
    """A scenario from a file's content; `name` is the file's, for the error's sentence."""
    fields = _mapping(content, name)
    _only(fields, {"name", "version", "title", "summary", "tags", "cold", "short", "n_predict", "share"}, name)
    cold, short = _prompt(fields, "cold", name), _prompt(fields, "short", name)
    share = fields.get("share")
    if fields.get("name") != name:
        raise ScenarioError(f"Scenario file {name} names itself {fields.get('name')!r}.")
    if cold.slot == short.slot:
        raise ScenarioError(f"Scenario {name} puts both prompts on slot {cold.slot}; they need one each.")
    if cold.depth:
        raise ScenarioError(f"Scenario {name} gives its cold prompt a warm depth of {cold.depth} tokens.")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ScenarioError(f"Scenario {name}: share must be at least 0 and below 1.")
    return Scenario(
        name=name,
        version=_count(fields, "version", name, least=1),
        title=str(fields.get("title", name)),
        summary=str(fields.get("summary", "")),
        cold=cold,
        short=short,
        n_predict=_count(fields, "n_predict", name, least=1),
        share=float(share),
        tags=tuple(map(str, fields.get("tags", ()))),
    )


def _mapping(content: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise ScenarioError(f"Scenario {where} must be a mapping of names to values.")
    return content


def _only(fields: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(str(key) for key in fields if key not in known):
        raise ScenarioError(f"Scenario {where} has unknown fields: {', '.join(unknown)}.")


def _prompt(fields: Mapping[str, Any], key: str, name: str) -> Prompt:
    where = f"{name}, {key}"
    part = _mapping(fields.get(key), where)
    _only(part, {"slot", "depth", "tokens"}, where)
    return Prompt(
        _count(part, "slot", where, least=0), _count(part, "depth", where, least=0), _count(part, "tokens", where, least=1)
    )


def _count(fields: Mapping[str, Any], key: str, where: str, least: int) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ScenarioError(f"Scenario {where}: {key} must be a whole number of at least {least}.")
    return value
