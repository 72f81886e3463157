"""manage.py verify_audit: whether the audit trail is whole. Exit code 0 when it is, 1 when it is not."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection

from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Broken
from scheduler_api.audit.models import AuditEntry


class Command(BaseCommand):
    help = "Checks the hash chain of the audit trail and names the first broken row. Exit code 1 when it is broken."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--expect",
            metavar="ROW:HASH",
            default="",
            help="a newest row that was noted earlier: tells whether rows were cut off at the end, or the chain made anew",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if problem := self._problem(options["expect"]):
            self.stderr.write(problem)
            sys.exit(1)

    def _problem(self, expected: str) -> str:
        found = selectors.verify()
        if isinstance(found, Broken):
            return f"The audit trail is broken at row {found.seq}: {found.why}."
        if expected and (problem := _differs(expected)):
            return problem
        if missing := guards.missing(connection):
            return (
                f"The chain is whole, but the database does not guard it: {', '.join(missing)} is missing. Run manage.py migrate."
            )
        rows = "1 row" if found.seq == 1 else f"{found.seq} rows"
        self.stdout.write(f"The audit trail is whole: {rows}. Its newest row, to be noted elsewhere: {found.seq}:{found.hash}")
        return ""


def _differs(expected: str) -> str:
    number, _, noted = expected.partition(":")
    if not number.isdecimal() or len(noted) != 64:
        return f"{expected!r} is not a row's number, a colon and its hash."
    row = AuditEntry.objects.filter(seq=int(number)).first()
    if row is None and int(number):
        return f"The audit trail is cut off: row {number}, noted earlier, is gone."
    if row is not None and row.hash != noted:
        return f"The audit trail was made anew: row {number} does not have the hash that was noted."
    return ""
