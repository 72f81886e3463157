"""manage.py restore FILE: makes a backup the installation's state. Exit code 1 when nothing was restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dashboard.backup import BackupError
from dashboard.backup.service import Restored, restore


class Command(BaseCommand):
    help = "Restores what manage.py backup wrote, while nothing of the installation runs. The old database is kept beside."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--force", action="store_true", help="although processes run, or the audit trail in the backup is broken"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            done = restore(options["file"].absolute(), force=options["force"])
        except BackupError as error:
            raise CommandError(str(error)) from None
        for line in told(done):
            self.stdout.write(line)


def told(done: Restored) -> list[str]:
    made = done.manifest
    forward = f", and brought forward by {_count(done.migrated, 'migration')}" if done.migrated else ""
    lines = [f"slotboard: restored the backup of {made.made_at} (Slotboard {made.version}){forward}."]
    if done.broken:
        lines.append(f"The audit trail in it is BROKEN at {done.broken}.")
    else:
        lines.append(f"Its audit trail is whole: {_count(done.head.seq, 'row')}. The restore is the next row.")
    if done.replaced is not None and done.replaced.seq > done.head.seq:
        lines.append(
            f"The trail of the database before went on to row {done.replaced.seq}: the later rows are in the old database alone."
        )
    if done.old:
        lines.append(f"The database before it is kept: {done.old}.")
    if done.lost:
        lines.append(
            f"{_count(done.lost, 'stored credential')} cannot be opened with this installation's key: give the key they were "
            "stored under in SLOTBOARD_CREDENTIAL_KEYS, or enter them again."
        )
    if not made.has_keys:
        lines.append("The backup held no keys, so this installation's own stay in force.")
    return [
        *lines,
        *done.notes,
        "Everybody has to log in again. Tokens and links that were revoked since are valid again: check them.",
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
