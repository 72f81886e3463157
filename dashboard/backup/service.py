"""Backing up and restoring, step by step. What a step finds wrong ends it before anything was changed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from dashboard.backup import BackupError, archive, postgresql, running, sqlite
from dashboard.backup.archive import Manifest
from scheduler_api import audit
from scheduler_api.alerts import outbox
from scheduler_api.audit import selectors
from scheduler_api.audit.chain import Broken, Head
from scheduler_api.observer.models import ObserverClaim
from scheduler_api.sealing import SealedField
from workers import reaping

CLOSED = "The console was restored from a backup that was made before this ended."


@dataclass(slots=True)
class Restored:
    """What came of a restore. `replaced` is the head of the old database's audit trail, None when it could not be read."""

    manifest: Manifest
    migrated: int = 0
    head: Head = field(default_factory=Head)
    broken: str = ""
    replaced: Head | None = None
    old: str = ""
    lost: int = 0
    notes: list[str] = field(default_factory=list)


# -- backup ---------------------------------------------------------------------------------------------------------------


def backup(target: Path, *, with_keys: bool, overwrite: bool) -> Manifest:
    """Writes `target`. Raises BackupError."""
    if not target.parent.is_dir():
        raise BackupError(f"There is no folder {target.parent}.")
    if target.exists() and not overwrite:
        raise BackupError(f"{target} is there already; choose another name, or overwrite it with --overwrite.")
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as folder:
        files, migrations, head = _gathered(Path(folder), with_keys=with_keys)
        manifest = Manifest(
            made_at=timezone.now().astimezone(UTC).isoformat(timespec="seconds"),
            version=settings.VERSION,
            database=connection.vendor,
            migrations=migrations,
            audit={"seq": head.seq, "hash": head.hash},
            members={name: archive.described(path) for name, path in files.items()},
        )
        archive.write(target, manifest, files, overwrite=overwrite)
    return manifest


def _gathered(folder: Path, *, with_keys: bool) -> tuple[dict[str, Path], dict[str, str], Head]:
    if connection.vendor not in archive.DATABASES:
        raise BackupError(f"A database of {connection.display_name} cannot be backed up by this command.")
    name = archive.DATABASES[connection.vendor]
    files = {name: folder / name}
    if connection.vendor == "sqlite":
        sqlite.dump(files[name])
        migrations = sqlite.migrations(files[name])
        with sqlite.standing_in(files[name]):
            head = _head() or Head()
    else:
        migrations, head = postgresql.migrations(), _head() or Head()
        postgresql.dump(files[name])
    if with_keys:
        for key, text in (
            (archive.CREDENTIAL_KEY, ",".join(settings.CREDENTIAL_KEYS)),
            (archive.SECRET_KEY, settings.SECRET_KEY),
        ):
            files[key] = folder / key
            files[key].write_text(text)
    own = Path(settings.VAR_DIR) / archive.FILES
    if own.is_dir():
        files |= {f"{archive.FILES}/{path.name}": path for path in sorted(own.iterdir()) if path.is_file()}
    return files, migrations, head


# -- restore --------------------------------------------------------------------------------------------------------------


def restore(source: Path, *, force: bool) -> Restored:
    """Makes what is in `source` the installation's state. Raises BackupError; the installation is then as it was.

    `force`: although processes run, and although the audit trail in the backup is broken.
    """
    var = Path(settings.VAR_DIR)
    var.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=_beside(var)) as name:
        folder = Path(name)
        manifest = archive.unpack(source, folder)
        _refuse_what_does_not_fit(manifest)
        if not force and (found := running.found()):
            raise BackupError(
                f"Stop this installation first: there is still {', '.join(found)}. To restore all the same, give --force."
            )
        done = Restored(manifest, replaced=_head())
        aside = f"before_restore_{timezone.now().astimezone(UTC):%Y%m%d_%H%M%S}"
        with _keys_in_force(folder, manifest):
            finish = _finishing(done, force=force)
            staged = folder / archive.DATABASES[manifest.database]
            if connection.vendor == "sqlite":
                done.old = sqlite.put(staged, aside, finish, force=force)
            else:
                done.old = postgresql.put(staged, aside, finish)
        _put_files(folder, var, aside, done)
    return done


def _beside(var: Path) -> Path:
    """A folder on the file system of the database, so that it can be renamed into its place."""
    return sqlite.database().parent if connection.vendor == "sqlite" and sqlite.database().parent.is_dir() else var


def _refuse_what_does_not_fit(manifest: Manifest) -> None:
    if manifest.database != connection.vendor:
        theirs = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[manifest.database]
        raise BackupError(f"This is a backup of a {theirs} database, and this installation uses {connection.display_name}.")
    known: dict[str, set[str]] = {}
    for app, name in MigrationLoader(None).disk_migrations:
        known.setdefault(app, set()).add(name)
    if unknown := newer(manifest.migrations, known):
        raise BackupError(
            f"This backup was made by a newer Slotboard ({manifest.version}; {unknown} is not known here): update this one first."
        )


def newer(theirs: Mapping[str, str], ours: Mapping[str, set[str]]) -> str:
    """The first of their newest migrations that this installation has never heard of; "" when it knows all."""
    return next((f"{app} {name}" for app, name in sorted(theirs.items()) if name not in ours.get(app, set())), "")


def _head() -> Head | None:
    """Of the audit trail; None for a database that has none yet, or cannot be read."""
    if connection.vendor == "sqlite" and not sqlite.database().exists():
        return None  # looking would make one
    try:
        with transaction.atomic():
            return selectors.head()
    except DatabaseError:
        return None
    finally:
        connection.close()


def _finishing(done: Restored, *, force: bool) -> Callable[[], None]:
    """What makes the database from the backup one that this installation can go on with."""

    def finish() -> None:
        before = _applied()
        call_command("migrate", verbosity=0, interactive=False)
        done.migrated = _applied() - before
        found = selectors.verify()
        if isinstance(found, Broken):
            done.broken = f"row {found.seq}: {found.why}"
            if not force:
                raise BackupError(
                    f"The audit trail in the backup is broken at {done.broken}. To restore it all the same, give --force."
                )
        done.head = selectors.head()
        _settle(done)
        done.lost = _lost_credentials()

    return finish


def _applied() -> int:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations")
        return int(cursor.fetchone()[0])


def _settle(done: Restored) -> None:
    """Nothing that was under way when the backup was made goes on by itself, and nobody is signed in."""
    with transaction.atomic():
        runs = reaping.close_all(CLOSED)
        messages = outbox.drop_unsent(CLOSED)
        Session.objects.all().delete()
        ObserverClaim.objects.all().delete()  # what is still watching, has no part in this database
        audit.record(
            "backup.restored",
            f"backup of {done.manifest.made_at}, Slotboard {done.manifest.version}",
            actor_name="manage.py restore",
            before=None if done.replaced is None else {"seq": done.replaced.seq, "head": done.replaced.hash},
            after={"seq": done.head.seq, "head": done.head.hash},
        )
    if runs:
        done.notes.append(f"{runs} experiment run{'s' if runs > 1 else ''} that had not ended will not go on.")
    if messages:
        done.notes.append(f"{messages} alert message{'s' if messages > 1 else ''} that had not been sent will not be.")


def _lost_credentials() -> int:
    """Stored credentials that no key opens."""
    count = 0
    for model in apps.get_models():
        names = [each.attname for each in model._meta.concrete_fields if isinstance(each, SealedField)]
        for row in model._default_manager.all() if names else ():
            count += sum(bool(getattr(getattr(row, name), "lost", "")) for name in names)
    return count


class _keys_in_force:
    """The backup's credential keys, where it has some and no variable names others, while the database is finished."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        given = bool(os.environ.get("SLOTBOARD_CREDENTIAL_KEYS"))
        self._keys: list[str] | None = None
        if manifest.has_keys and not given:
            self._keys = (folder / archive.CREDENTIAL_KEY).read_text().strip().split(",")
        self._before: Any = settings.CREDENTIAL_KEYS

    def __enter__(self) -> None:
        if self._keys is not None:
            settings.CREDENTIAL_KEYS = self._keys

    def __exit__(self, *error: object) -> None:
        settings.CREDENTIAL_KEYS = self._before


def _put_files(folder: Path, var: Path, aside: str, done: Restored) -> None:
    for name, variable in ((archive.CREDENTIAL_KEY, "SLOTBOARD_CREDENTIAL_KEYS"), (archive.SECRET_KEY, "SLOTBOARD_SECRET_KEY")):
        if (fresh := folder / name).exists():
            if os.environ.get(variable):
                done.notes.append(f"{variable} is set and stays in force; the backup's own lies in {var / name}.")
            _put_file(fresh, var / name, aside)
    own = folder / archive.FILES
    for fresh in sorted(own.iterdir()) if own.is_dir() else ():
        _put_file(fresh, var / archive.FILES / fresh.name, aside)


def _put_file(fresh: Path, target: Path, aside: str) -> None:
    """The old one is kept beside where it differs."""
    if not target.parent.exists():
        target.parent.mkdir()
        sqlite.owned_like(target.parent.parent, target.parent)
    if target.exists():
        if target.read_bytes() == fresh.read_bytes():
            return
        os.rename(target, target.with_name(f"{target.name}.{aside}"))
    sqlite.owned_like(target.parent, fresh)
    shutil.move(fresh, target)
