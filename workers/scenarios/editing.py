"""Changing single values of a scenario's YAML where they stand, so that its comments, order and layout stay. Pure.

A path is dotted as in faults: "streams[0].arrivals.rate".
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

type Nodes = dict[str, tuple[yaml.Node, yaml.Node | None]]  # value and key

TEXTS = frozenset({"name", "title", "summary", "client", "kind", "file", "format", "spacing", "think_spread", "tags", "files"})
WIDTH = 120


def values(text: str) -> dict[str, str]:
    """Each single value and each list of single values, by path, as a form shows it. The text must be YAML."""
    return {path: told for path, (node, _) in _nodes(text).items() if (told := _told(node)) is not None}


def change(text: str, changes: Mapping[str, str]) -> str:
    """With these values; a path that is not there is added to the mapping it belongs to, and left out when its value is empty.

    An emptied value becomes null. Whether the result is a scenario is for its reader to say. The text must be YAML.
    """
    nodes = _nodes(text)
    edits: list[tuple[int, int, str]] = []
    missing: dict[str, dict[str, str]] = defaultdict(dict)
    for path, value in changes.items():
        if path in nodes:
            if _told(nodes[path][0]) != value:
                edits.append(_replacement(text, nodes[path], path, value))
        elif value.strip():
            parent, _, key = path.rpartition(".")
            missing[parent][key] = _scalar(key, value)
    edits += [_insertion(text, nodes, parent, keys) for parent, keys in missing.items()]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _nodes(text: str) -> Nodes:
    root = yaml.compose(text, yaml.SafeLoader)
    found: Nodes = {}
    if root is not None:
        found[""] = (root, None)
        found.update(_walk(root, ""))
    return found


def _walk(node: yaml.Node, path: str) -> Iterator[tuple[str, tuple[yaml.Node, yaml.Node | None]]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}".lstrip(".")
            yield inner, (value, key)
            yield from _walk(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            yield f"{path}[{place}]", (item, None)
            yield from _walk(item, f"{path}[{place}]")


def _told(node: yaml.Node) -> str | None:
    if isinstance(node, yaml.ScalarNode):
        return "" if node.tag.endswith(":null") else str(node.value).strip()
    if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return ", ".join(str(item.value) for item in node.value)
    return None


def _replacement(text: str, found: tuple[yaml.Node, yaml.Node | None], path: str, value: str) -> tuple[int, int, str]:
    node, key = found
    start, end = node.start_mark.index, node.end_mark.index
    name = path.rpartition(".")[2]
    if isinstance(node, yaml.SequenceNode):
        new = _list(name, value)
        if not node.flow_style:  # its items stand on lines of their own, up to where the next thing begins
            items_end = node.value[-1].end_mark.index if node.value else end
            new, end = f"\n{' ' * ((key.start_mark.column if key else 0) + 2)}{new}", items_end
            start = text.rindex(":", 0, start) + 1
        return start, end, new
    if isinstance(node, yaml.ScalarNode) and node.style in (">", "|"):
        indent = " " * ((key.start_mark.column if key else 0) + 2)
        folded = textwrap.fill(" ".join(value.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)
        tail = "\n" if text[start:end].endswith("\n") else ""
        return start, end, f">-\n{folded}{tail}" if value.strip() else f'""{tail}'
    return start, end, _scalar(name, value)


def _insertion(text: str, nodes: Nodes, parent: str, keys: Mapping[str, str]) -> tuple[int, int, str]:
    """Behind the first entry of the mapping `parent`; one that is not there itself is added to the mapping above it."""
    if parent not in nodes:
        above, _, name = parent.rpartition(".")
        return _insertion(text, nodes, above, {name: "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"})
    mapping = nodes[parent][0]
    assert isinstance(mapping, yaml.MappingNode)
    added = [f"{key}: {value}" for key, value in keys.items()]
    if not mapping.value:
        return mapping.start_mark.index, mapping.end_mark.index, "{" + ", ".join(added) + "}"
    key, value = mapping.value[0]
    at = value.end_mark.index
    if mapping.flow_style:
        return at, at, "".join(f", {each}" for each in added)
    line_end = text.find("\n", at)
    at = len(text) if line_end < 0 else line_end
    return at, at, "".join(f"\n{' ' * key.start_mark.column}{each}" for each in added)


def _list(name: str, value: str) -> str:
    return "[" + ", ".join(_scalar(name, part.strip()) for part in value.split(",") if part.strip()) + "]"


def _scalar(name: str, value: str) -> str:
    """As YAML: a number, a truth or null where the field is one, else a text, in quotes where it needs them."""
    value = value.strip()
    name = re.sub(r"\[\d+\]$", "", name)
    if name in ("tags", "files", "times") and not value.startswith("[") and "," in value:
        return _list(name, value)
    if not value:
        return '""' if name in ("name", "title", "summary") else "null"
    if name in TEXTS:
        return (
            value if value.isprintable() and _plain(value) == value else json.dumps(value, ensure_ascii=not value.isprintable())
        )
    read = _plain(value)
    return (
        value
        if read is None or isinstance(read, int | float) or read == value
        else json.dumps(value, ensure_ascii=not value.isprintable())
    )


def _plain(value: str) -> Any:
    """What a plain scalar of that text is read as, inside a list too; an own object when it is no single plain scalar."""
    try:
        read = yaml.safe_load(f"[{value}]")
    except (yaml.YAMLError, ValueError):
        return object()
    return read[0] if isinstance(read, list) and len(read) == 1 and not isinstance(read[0], list | dict) else object()
