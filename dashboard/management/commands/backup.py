"""manage.py backup FILE: the whole installation in one file, while everything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import filesizeformat

from dashboard.backup import BackupError
from dashboard.backup.service import backup

WITHOUT = (
    "It holds no keys: restored where var/credential_key is another one, the stored keys of servers and webhooks have to be "
    "entered again, and with another secret key second factors have to be set up again. --with-keys takes both in."
)
WITH = "It holds the keys: whoever has the file can read every stored credential. Keep it as you would keep them."


class Command(BaseCommand):
    help = "Writes the database, operators' scenario files and, with --with-keys, the keys into one file (tar.gz)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--with-keys", action="store_true", help="the credential key and the secret key too")
        parser.add_argument("--overwrite", action="store_true", help="replace FILE when it is there already")

    def handle(self, *_: Any, **options: Any) -> None:
        target: Path = options["file"].absolute()
        try:
            made = backup(target, with_keys=options["with_keys"], overwrite=options["overwrite"])
        except BackupError as error:
            raise CommandError(str(error)) from None
        size = filesizeformat(target.stat().st_size).replace("\xa0", " ")
        self.stdout.write(f"slotboard: {target} has everything as of {made.made_at} ({size}).")
        self.stdout.write(f"The audit trail then: {made.audit['seq']}:{made.audit['hash']}")
        self.stdout.write(WITH if made.has_keys else WITHOUT)
