"""The form that edits a scenario's common fields: which there are, what they are called, and what was said about each.

The text is the scenario; the form shows values that stand in it, and changing one changes the text in that place alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workers.scenarios.editing import values
from workers.scenarios.schema import Fault

PREFIX = "f."
LABELS = {
    "name": "name",
    "title": "title",
    "summary": "what it shows",
    "tags": "tags",
    "scale": "scale",
    "written_for": "written for",
    "arrivals.kind": "arrivals",
    "arrivals.rate": "rate",
    "arrivals.for_s": "for",
    "arrivals.start_s": "begins after",
    "arrivals.times": "at",
    "arrivals.concurrency": "users at once",
    "arrivals.requests": "requests",
    "arrivals.think_s": "think time",
    "arrivals.cv": "burstiness (cv)",
    "arrivals.from_rate": "from rate",
    "arrivals.to_rate": "to rate",
    "arrivals.file": "file",
    "arrivals.format": "format",
    "arrivals.playback_speed": "playback speed",
    "arrivals.limit": "at most",
    "prompt.tokens": "prompt",
    "prompt.tokens.range.min": "prompt from",
    "prompt.tokens.range.max": "prompt to",
    "prompt.tokens.lognormal.median": "prompt median",
    "prompt.tokens.lognormal.sigma": "prompt sigma",
    "prompt.tokens.lognormal.min": "prompt at least",
    "prompt.tokens.lognormal.max": "prompt at most",
    "prompt.prefix.tokens": "shared prefix",
    "prompt.warm.tokens": "warm depth",
    "prompt.warm.contexts": "warm contexts",
    "output": "answer",
    "output.range.min": "answer from",
    "output.range.max": "answer to",
    "output.lognormal.median": "answer median",
    "output.lognormal.sigma": "answer sigma",
    "output.lognormal.min": "answer at least",
    "output.lognormal.max": "answer at most",
    "turns": "turns",
    "turn_think_s": "between turns",
    "slot": "slot",
    "client": "client",
    "cancel_after.seconds": "client leaves after",
    "cancel_after.tokens": "client leaves after",
    "cancel_after.share": "share that leaves",
    "slo.ttft_s": "TTFT limit",
    "slo.itl_s": "ITL limit",
    "slo.tpot_s": "TPOT limit",
    "slo.e2e_s": "E2E limit",
}
UNITS = {
    "rate": "a second",
    "from_rate": "a second",
    "to_rate": "a second",
    "playback_speed": "2 is twice as fast",
    "limit": "requests",
}
TOKENS = re.compile(r"(^|\.)(tokens|output|median|min|max)$")
HEAD = ("name", "title", "summary", "tags", "scale", "written_for")
ALWAYS = ("tags", "scale")  # offered though the text does not have them
ALWAYS_OF_STREAM = ("slot", "client", "slo.ttft_s", "slo.e2e_s")
FIXED = ("arrivals.kind", "arrivals.format")  # other values need other fields beside them: for the text
STREAM = re.compile(r"^streams\[(\d+)\]\.(.+)$")


@dataclass(frozen=True, slots=True)
class Field:
    """`name` of the form's input; `fault` what is wrong with its value, "" when nothing is."""

    name: str
    label: str
    value: str
    unit: str = ""
    fault: str = ""
    long: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class StreamFields:
    name: str
    fields: tuple[Field, ...]


def fields(text: str, faults: Iterable[Fault] = ()) -> tuple[list[Field], list[StreamFields]]:
    """Those above the streams, and those of each stream, in the order of their labels. `text` must be YAML."""
    known = values(text)
    said = {fault.field: fault.text for fault in faults}
    head = [_field(name, name, known.get(name, ""), said) for name in HEAD if name in known or name in ALWAYS]
    streams: dict[int, dict[str, str]] = {}
    for path, value in known.items():
        if found := STREAM.match(path):
            streams.setdefault(int(found[1]), {})[found[2]] = value
    return head, [_stream(number, own, said) for number, own in sorted(streams.items())]


def _stream(number: int, own: Mapping[str, str], said: Mapping[str, str]) -> StreamFields:
    names = [
        "name",
        *(name for name in LABELS if name != "name" and name not in HEAD and (name in own or name in ALWAYS_OF_STREAM)),
    ]
    names += [name for name in own if re.match(r"arrivals\.stages\[\d+\]\.\w+$", name)]
    made = [_field(f"streams[{number}].{name}", name, own.get(name, ""), said) for name in names]
    return StreamFields(own.get("name", f"stream {number + 1}"), tuple(made))


def _field(path: str, name: str, value: str, said: Mapping[str, str]) -> Field:
    stage = re.match(r"arrivals\.stages\[(\d+)\]\.(\w+)$", name)
    label = f"stage {int(stage[1]) + 1}, {LABELS.get(f'arrivals.{stage[2]}', stage[2])}" if stage else LABELS[name]
    return Field(
        name=f"{PREFIX}{path}",
        label=label,
        value=value,
        unit=_unit(name),
        fault=said.get(path, ""),
        long=name == "summary",
        fixed=name in FIXED,
    )


def _unit(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in UNITS:
        return UNITS[last]
    if last.endswith("_s") or last == "seconds" or last == "times":
        return "s"
    if name == "written_for":
        return "prompt tokens a second"
    return "tokens" if TOKENS.search(name) else ""


def changes(sent: Mapping[str, str]) -> dict[str, str]:
    """What a posted form says, by path."""
    return {
        name.removeprefix(PREFIX): value
        for name, value in sent.items()
        if name.startswith(PREFIX) and not any(name.endswith(fixed) for fixed in FIXED)
    }
