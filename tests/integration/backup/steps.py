"""Backing up, restoring, and spoiling a backup, for tests."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from dashboard.backup import archive, sqlite


def made(var: Path, *options: str) -> Path:
    target = var.parent / "console.tar.gz"
    call_command("backup", str(target), *options, stdout=StringIO())
    return target


def restored(file: Path, *options: str) -> str:
    out = StringIO()
    call_command("restore", str(file), *options, stdout=out)
    return out.getvalue()


def refused(file: Path, *options: str) -> str:
    """The sentence of a restore that must change nothing."""
    before = content(sqlite.database())
    with pytest.raises(CommandError) as refusal:
        restored(file, *options)
    assert content(sqlite.database()) == before
    assert [path.name for path in sqlite.database().parent.glob("*before_restore*")] == []
    assert [path.name for path in sqlite.database().parent.glob(".re*")] == [], "nothing is left lying about"
    return str(refusal.value)


def content(path: Path) -> list[str]:
    connection.close()
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def names_in(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


def remade(file: Path, change: Callable[[dict[str, bytes]], None], extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    """The same backup with its members changed, as somebody with an editor would leave it."""
    with tarfile.open(file) as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    change(members)
    target = file.with_name("changed.tar.gz")
    with tarfile.open(target, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in extra:
            tar.addfile(info)
    return target


def with_manifest(members: dict[str, bytes], **change: object) -> None:
    """The manifest says so, and the sums fit."""
    told = json.loads(members[archive.MANIFEST]) | change
    sums = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()}
    told["members"] = {name: each for name, each in sums.items() if name != archive.MANIFEST}
    members[archive.MANIFEST] = json.dumps(told).encode()
