"""The file of a backup: a tar.gz whose first member, manifest.json, names all the others with their sizes and SHA-256.

The sums tell a torn or damaged file, and one that was edited carelessly; whoever can write the file can write its sums too.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any

from dashboard.backup import BackupError

FORMAT = 1
MANIFEST = "manifest.json"
DATABASES = {"sqlite": "database.sqlite3", "postgresql": "database.pgdump"}
CREDENTIAL_KEY, SECRET_KEY = "credential_key", "secret_key"
FILES = "scenario-files"
MOST_MANIFEST = 8 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`made_at` is ISO 8601 in UTC, `database` the vendor, `migrations` the newest applied one of each app, `audit` the place and
    hash of the newest row of the trail, `members` everything else in the file by its name."""

    made_at: str
    version: str
    database: str
    migrations: Mapping[str, str]
    audit: Mapping[str, Any]
    members: Mapping[str, Member]

    @property
    def has_keys(self) -> bool:
        return CREDENTIAL_KEY in self.members


def described(path: Path) -> Member:
    with path.open("rb") as file:
        return Member(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write(target: Path, manifest: Manifest, files: Mapping[str, Path], *, overwrite: bool) -> None:
    """`target` appears whole or not at all, readable by its owner alone. Raises BackupError when it is there already."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            with tarfile.open(fileobj=output, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as tar:
                _add(tar, MANIFEST, BytesIO(data := _encoded(manifest)), len(data))
                for name, path in files.items():
                    with path.open("rb") as file:
                        _add(tar, name, file, manifest.members[name].bytes)
            output.flush()
            os.fsync(output.fileno())
        if overwrite:
            os.replace(part, target)
        else:
            os.link(part, target)
    except FileExistsError:
        raise BackupError(f"{target} is there already; choose another name, or overwrite it with --overwrite.") from None
    except OSError as error:
        raise BackupError(f"{target} could not be written: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def _encoded(manifest: Manifest) -> bytes:
    return json.dumps({"product": "Slotboard", "format": FORMAT, **asdict(manifest)}, indent=1, sort_keys=True).encode()


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    tar.addfile(info, content)


def unpack(source: Path, folder: Path) -> Manifest:
    """Every member into `folder`, checked. Raises BackupError; what lies in the folder is then of no use."""
    try:
        with tarfile.open(source, "r:gz") as tar:
            manifest = _manifest(source, tar)
            found = {info.name for info in tar if info.name != MANIFEST and _extract(tar, info, manifest, folder)}
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BackupError(f"{source} is torn or is no backup: {error}.") from None
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror or error}.") from None
    if missing := sorted(set(manifest.members) - found):
        raise BackupError(f"{source} is torn: {', '.join(missing)} is missing.")
    return manifest


def _manifest(source: Path, tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    content = tar.extractfile(first) if first is not None and first.name == MANIFEST and first.isreg() else None
    if first is None or content is None or first.size > MOST_MANIFEST:
        raise BackupError(f"{source} is no backup of Slotboard: it does not begin with {MANIFEST}.")
    try:
        told = json.loads(content.read())
        if told["product"] != "Slotboard":
            raise ValueError(told["product"])
        if told["format"] > FORMAT:
            raise BackupError(f"{source} was made by a newer Slotboard ({told['version']}); update this one first.")
        members = {str(name): Member(int(each["bytes"]), str(each["sha256"])) for name, each in told["members"].items()}
        manifest = Manifest(
            made_at=str(told["made_at"]),
            version=str(told["version"]),
            database=str(told["database"]),
            migrations=dict(told["migrations"]),
            audit=dict(told["audit"]),
            members=members,
        )
        if DATABASES[manifest.database] not in members:
            raise ValueError("it names no database")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{MANIFEST} of {source} cannot be read: {error}.") from None
    return manifest


def _extract(tar: tarfile.TarFile, info: tarfile.TarInfo, manifest: Manifest, folder: Path) -> bool:
    """Always true; raises BackupError for what a backup does not hold, and for what is not as it was written."""
    if not info.isreg() or not is_ours(info.name):
        raise BackupError(f"The backup holds {info.name!r}, which does not belong in one; nothing was restored.")
    expected = manifest.members.get(info.name)
    content = tar.extractfile(info)
    if expected is None or content is None or info.size != expected.bytes:
        raise BackupError(f"{info.name} is not what the backup's manifest says; the file was changed, and nothing was restored.")
    target = folder / info.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    summed = hashlib.sha256()
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        while chunk := content.read(_CHUNK):
            summed.update(chunk)
            output.write(chunk)
    if summed.hexdigest() != expected.sha256:
        raise BackupError(f"{info.name} is not what the backup's manifest says; the file was changed, and nothing was restored.")
    return True


def is_ours(name: str) -> bool:
    """Whether a backup holds a member of this name: nothing absolute, nothing that climbs, nothing else."""
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return name in (*DATABASES.values(), CREDENTIAL_KEY, SECRET_KEY) or (path.parts[0] == FILES and len(path.parts) == 2)
