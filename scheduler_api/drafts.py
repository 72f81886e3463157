"""Draft models of an engine: the files that it lists, and what it would do with a pair of them. Asked, never written."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from scheduler_api import wire
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.kinds.fields import Json, count, items, mapping, text
from scheduler_api.models import Server, ServerKind
from scheduler_api.policies import target_of

MODES = ("auto", "off", "temporal")
LONGEST_PATH = 4096
_LONGEST_SENTENCE = 2000


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file on the engine's machine. `in_use` is "model", "draft" or ""; sizes in bytes, None when not told."""

    path: str
    name: str
    folder: str
    size_bytes: int | None
    n_files: int | None
    in_use: str


@dataclass(frozen=True, slots=True)
class InUse:
    """The draft that the engine was started with: loaded, or left out; `text` says why."""

    path: str
    loaded: bool
    text: str


@dataclass(frozen=True, slots=True)
class Files:
    """What may be checked. `folders` are those that the engine was started with; `draft` None where it has none."""

    folders: tuple[str, ...]
    files: tuple[ModelFile, ...]
    complete: bool
    draft: InUse | None


@dataclass(frozen=True, slots=True)
class Side:
    """What a header says: label and value, as the engine words them. `sections` has four numbers, or none."""

    path: str
    name: str
    architecture: str
    sections: tuple[int, ...]
    n_rot: int | None
    found: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Check:
    """The engine's answer for a pair. `outcome`: not_applicable, explicit, inferred, invalid or unreadable (no sides then)."""

    mode: str
    outcome: str
    headline: str
    text: str
    next_step: str
    sections: tuple[int, ...]
    warnings: tuple[str, ...]
    target: Side | None
    draft: Side | None


def why_not(server: Server) -> str:
    """Why this server cannot be asked; "" when it can."""
    if server.kind == ServerKind.ENGINE:
        return ""
    return f"{server.get_kind_display()} lists no model files. Drafts are checked by engines, on the machine that they run on."


def read_files(server: Server) -> Files:
    """Raises ServerUnreachable."""
    value = _ask(server, "/models/files")
    files = [_file(mapping(each)) for each in items(value.get("files"))]
    return Files(
        folders=tuple(text(folder, LONGEST_PATH) for folder in items(value.get("folders"))),
        files=tuple(file for file in files if file.path),
        complete=value.get("complete") is not False,
        draft=_in_use(value.get("draft")),
    )


def check(server: Server, target: str, draft: str, mode: str) -> Check:
    """Both paths as `read_files` gave them; the engine refuses others. Raises ServerUnreachable."""
    query = urlencode({"target": target, "draft": draft, "draft_rope": mode})
    value = _ask(server, f"/models/check?{query}")
    return Check(
        mode=text(value.get("mode")),
        outcome=text(value.get("outcome")),
        headline=text(value.get("headline")),
        text=text(value.get("text"), _LONGEST_SENTENCE),
        next_step=text(value.get("next_step"), _LONGEST_SENTENCE),
        sections=_numbers(value.get("sections")),
        warnings=tuple(text(each, _LONGEST_SENTENCE) for each in items(value.get("warnings"))),
        target=_side(value.get("target")),
        draft=_side(value.get("draft")),
    )


def _ask(server: Server, path: str) -> Json:
    answer = wire.call(target_of(server), "GET", path)
    if answer.status == 404:
        raise ServerUnreachable(f"{server.name} lists no model files: its engine is older than this page. Start it anew.")
    if answer.status in (401, 403):
        raise ServerUnreachable(f"{server.name} does not accept the registered key.")
    try:
        value = mapping(answer.json()) if answer.status == 200 else {}
    except ValueError:
        value = {}
    if not value:
        said = answer.error_message() or f"it answers {answer.status} without saying why"
        raise ServerUnreachable(f"{server.name} did not check: {said}")
    return value


def _file(raw: Json) -> ModelFile:
    return ModelFile(
        path=text(raw.get("path"), LONGEST_PATH),
        name=text(raw.get("name"), LONGEST_PATH),
        folder=text(raw.get("folder"), LONGEST_PATH),
        size_bytes=count(raw.get("size_bytes")),
        n_files=count(raw.get("n_files")),
        in_use=text(raw.get("in_use"), 20),
    )


def _in_use(raw: object) -> InUse | None:
    if not isinstance(raw, dict):
        return None
    return InUse(text(raw.get("path"), LONGEST_PATH), raw.get("loaded") is True, text(raw.get("text"), _LONGEST_SENTENCE))


def _side(raw: object) -> Side | None:
    if not isinstance(raw, dict):
        return None
    found = [(text(each.get("label")), text(each.get("value"))) for each in map(mapping, items(raw.get("found")))]
    return Side(
        path=text(raw.get("path"), LONGEST_PATH),
        name=text(raw.get("name")),
        architecture=text(raw.get("architecture")),
        sections=_numbers(raw.get("sections")),
        n_rot=count(raw.get("n_rot")),
        found=tuple(pair for pair in found if pair[0]),
    )


def _numbers(raw: object) -> tuple[int, ...]:
    numbers = [count(each) for each in items(raw)][:4]
    return tuple(each for each in numbers if each is not None)
