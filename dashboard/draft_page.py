"""What the page of a draft check shows: choices, the found values side by side, and rotary sections as bars. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboard import present
from scheduler_api.drafts import Check, ModelFile, Side

MODES = (
    ("auto", "auto", "sections are inferred where the target needs them"),
    ("off", "off", "the draft is loaded as it is"),
    ("temporal", "temporal", "temporal-only sections, whatever the files say"),
)
SECTION_NAMES = ("temporal", "height", "width", "extra")
_TONES = {
    "inferred": ("ok", ""),
    "explicit": ("ok", ""),
    "not_applicable": ("info", ""),
    "invalid": ("failed", "is-bad"),
    "unreadable": ("failed", "is-bad"),
}
_USES = {"model": "served now", "draft": "the draft it was started with"}


@dataclass(frozen=True, slots=True)
class Choice:
    path: str
    label: str


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one folder."""

    folder: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One section of a bar: places in per cent of the rotating pairs."""

    name: str
    pairs: int
    x: float
    width: float
    place: int


@dataclass(frozen=True, slots=True)
class Bar:
    """How the rotating pairs of a model are shared. Without parts all of them follow one position."""

    who: str
    pairs: int
    parts: tuple[Part, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    target: str
    draft: str


def groups(files: Iterable[ModelFile]) -> list[Group]:
    """By folder, in the engine's order; a file's label tells its size, its parts and what it is used for."""
    found: dict[str, list[Choice]] = {}
    for file in files:
        found.setdefault(file.folder, []).append(Choice(file.path, label(file)))
    return [Group(folder, tuple(choices)) for folder, choices in found.items()]


def label(file: ModelFile) -> str:
    facts = [size(file.size_bytes)] if file.size_bytes is not None else []
    facts += [f"{file.n_files} files"] if file.n_files and file.n_files > 1 else []
    facts += [_USES[file.in_use]] if file.in_use in _USES else []
    return f"{file.name} ({', '.join(facts)})" if facts else file.name


def size(n_bytes: int) -> str:
    """In decimal units, as file managers tell it."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if n_bytes >= 10**power:
            return f"{present.grouped(n_bytes / 10**power, 1)} {unit}"
    return f"{n_bytes} bytes"


def tone(check: Check) -> tuple[str, str]:
    """Mark and class of the outcome."""
    return _TONES.get(check.outcome, ("unknown", ""))


def rows(check: Check) -> list[Row]:
    """Target and draft side by side, in the target's order; what only one of them has comes last."""
    if check.target is None or check.draft is None:
        return []
    ours, theirs = dict(check.target.found), dict(check.draft.found)
    return [Row(name, ours.get(name, "none"), theirs.get(name, "none")) for name in dict.fromkeys((*ours, *theirs))]


def bars(check: Check) -> list[Bar]:
    """The target's sections, the draft's as the file has them, and as it would run where that differs."""
    if check.target is None or check.draft is None or not check.sections:
        return []
    shown = [
        _bar("Target", check.target, check.target.sections),
        _bar("Draft, as its file says", check.draft, check.draft.sections),
    ]
    if check.sections != check.draft.sections:
        shown.append(_bar("Draft, as it would run", check.draft, check.sections))
    return shown


def _bar(who: str, side: Side, sections: Sequence[int]) -> Bar:
    pairs = max(sum(sections), (side.n_rot or 0) // 2, 1)
    if not any(sections):
        return Bar(who, pairs, (), "no sections: all pairs follow one position, which must be the next one")
    parts, begin = [], 0
    for place, (name, size_) in enumerate(zip(SECTION_NAMES, sections, strict=False)):
        if size_:
            parts.append(Part(name, size_, round(100 * begin / pairs, 2), round(100 * size_ / pairs, 2), place))
        begin += size_
    return Bar(who, pairs, tuple(parts))
