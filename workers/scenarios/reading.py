"""A scenario's YAML, with errors that name the line, the field and what is allowed there.

PyYAML gives the place of every node, pydantic the rules; both come with what the console needs anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from workers.scenarios.schema import Fault, ScenarioError
from workers.scenarios.streams import LoadScenario

type Path = tuple[str | int, ...]

OWN = {  # faults that the form words itself
    *("unknown_field", "amount", "range", "closed", "ramp", "search", "prompt", "cancel", "sizes", "turns", "edge", "names"),
}
MOST_TOLD = 5
MOST_BYTES = 1 << 20
DEEPEST = 16


def read(text: str, name: str = "scenario") -> LoadScenario:
    """`name` stands in the error's sentences. Raises ScenarioError, whose message has a line for each fault."""
    content, lines = parse(text, name)
    if not isinstance(content, dict):
        raise _error(name, 1, "a scenario must be a mapping of names to values")
    try:
        return LoadScenario.model_validate(content)
    except ValidationError as error:
        faults = tuple(_fault(each, content, lines) for each in error.errors(include_url=False))
        told = [f"{name}, line {fault.line}: {fault.text}." for fault in faults[:MOST_TOLD]]
        more = [f"and {len(faults) - MOST_TOLD} more"] if len(faults) > MOST_TOLD else []
        raise ScenarioError("\n".join([*told, *more]), faults) from None


def _error(name: str, line: int, text: str) -> ScenarioError:
    return ScenarioError(f"{name}, line {line}: {text}.", (Fault(line, "", text),))


def parse(text: str, name: str) -> tuple[Any, Mapping[Path, int]]:
    """The content, and the line of each key and item, counted from 1. Raises ScenarioError."""
    if len(text) > MOST_BYTES:
        raise ScenarioError(f"{name}: a scenario of more than {MOST_BYTES >> 20} MB is refused.")
    lines: dict[Path, int] = {}
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:  # told at once: PyYAML's time grows with the square of the depth
                raise _error(name, _line(event.start_mark), "nested too deeply")
            if isinstance(event, yaml.AliasEvent):
                raise _error(name, _line(event.start_mark), f"references (*{event.anchor}) are not taken here")
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None:
            _note(node, (), lines, name)
        return yaml.safe_load(text), lines
    except yaml.MarkedYAMLError as error:
        raise _error(name, _line(error.problem_mark), f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise _error(name, 1, f"not YAML: {error}") from None
    except (ValueError, OverflowError) as error:  # a number or a date that Python cannot hold
        raise _error(name, 1, f"a value cannot be read: {error}") from None


def _line(mark: Any) -> int:
    return 1 if mark is None else int(mark.line) + 1


def _note(node: yaml.Node, path: Path, lines: dict[Path, int], name: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            if inner in lines:
                raise _error(name, key.start_mark.line + 1, f"{_dotted(inner)} stands there twice")
            lines[inner] = key.start_mark.line + 1
            _note(value, inner, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            _note(item, (*path, place), lines, name)


def _fault(fault: ErrorDetails, content: Any, lines: Mapping[Path, int]) -> Fault:
    path = _path(fault["loc"], content, missing=fault["type"] == "missing")
    context = fault.get("ctx", {})
    if fault["type"] == "unknown_field":
        path = (*path, str(context["name"]))
    line = next(lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines)
    return Fault(line, _dotted(path), f"{_dotted(path) or 'the scenario'} {_words(fault)}")


def _words(fault: ErrorDetails) -> str:
    kind, context, given = fault["type"], fault.get("ctx", {}), fault["input"]
    it_is = "" if isinstance(given, dict | list) else f", not {given!r}"
    match kind:
        case "missing":
            return "is missing"
        case "literal_error":
            return f"must be {context['expected']}{it_is}"
        case "union_tag_invalid":
            return f"has an unknown kind {context['tag']!r}; allowed are {context['expected_tags']}"
        case "model_type" | "model_attributes_type":
            return f"must be a mapping of names to values{it_is}"
        case "union_tag_not_found":
            return "needs a kind"
        case "string_pattern_mismatch":
            return f"must be lower-case letters, digits and hyphens, a letter first, at most 40{it_is}"
        case _ if kind in OWN:
            return fault["msg"]
        case _:
            said = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return f"must be {said[0].lower()}{said[1:]}{it_is}"


def _path(loc: Path, content: Any, *, missing: bool) -> Path:
    """Where the fault lies in the file: without the tags of unions, which pydantic puts in."""
    path: list[str | int] = []
    for place, part in enumerate(loc):
        if (isinstance(content, dict) and part in content) or (isinstance(content, list) and isinstance(part, int)):
            content = content[part]  # type: ignore[index]
            path.append(part)
        elif missing and place == len(loc) - 1:
            path.append(part)
    return tuple(path)


def _dotted(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
