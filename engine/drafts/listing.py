"""GGUF files in folders that the operator named: their names and sizes, and nothing of what is in them.

A file counts only if it lies in one of the folders once every link is followed, so a link cannot lead out of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 1000
MAX_DEPTH = 6
MAX_ENTRIES = 20_000  # looked at in all folders together

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """`name` is the path below `folder`. A split model is one, by its first file, with the bytes of all that are there."""

    path: Path
    name: str
    folder: Path
    size_bytes: int
    n_files: int


@dataclass(frozen=True, slots=True)
class Listing:
    """In the order of folders and names. `complete` is false where the limits above cut it short."""

    files: tuple[ModelFile, ...]
    complete: bool


def list_models(folders: Sequence[Path]) -> Listing:
    """Folders that are gone or closed to the process count as empty."""
    roots = [folder.resolve() for folder in folders]
    budget = [MAX_ENTRIES]
    files: list[ModelFile] = []
    for folder in folders:
        for path in _walk(folder, MAX_DEPTH, budget):
            if len(files) == MAX_FILES:
                return Listing(tuple(files), complete=False)
            if (found := _model_file(path, folder, roots)) is not None:
                files.append(found)
    return Listing(tuple(files), complete=budget[0] > 0)


def one_model(path: Path) -> ModelFile | None:
    """A file by itself, in its own folder; None where there is none, or a link leads out of the folder."""
    return _model_file(path, path.parent, [path.parent.resolve()])


def _walk(folder: Path, depth: int, budget: list[int]) -> Iterator[Path]:
    """Files by name, then folders; links to folders are not followed, names with a dot in front are left out."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return
    below: list[Path] = []
    for entry in entries:
        budget[0] -= 1
        if budget[0] <= 0:
            return
        if entry.is_dir(follow_symlinks=False):
            below.append(Path(entry.path))
        elif entry.name.endswith(".gguf"):
            yield Path(entry.path)
    for path in below if depth > 1 else ():
        yield from _walk(path, depth - 1, budget)


def _model_file(path: Path, folder: Path, roots: Sequence[Path]) -> ModelFile | None:
    shard = _SHARD.search(path.name)
    if shard and shard[1] != "00001":
        return None
    size = _size(path, roots)
    if size is None:
        return None
    name, count = str(path.relative_to(folder)), min(int(shard[2]), MAX_FILES) if shard else 1
    for number in range(2, count + 1):
        part = path.with_name(_SHARD.sub(f"-{number:05d}-of-{count:05d}.gguf", path.name))
        size += _size(part, roots) or 0
    return ModelFile(path, name, folder, size, max(1, count))


def _size(path: Path, roots: Sequence[Path]) -> int | None:
    """None for what is no file, or lies elsewhere."""
    try:
        real = path.resolve(strict=True)
        if not real.is_file() or not any(real.is_relative_to(root) for root in roots):
            return None
        return real.stat().st_size
    except OSError:
        return None
