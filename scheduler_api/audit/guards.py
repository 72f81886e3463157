"""Triggers by which the database itself refuses to edit or delete audit rows: SQLite and PostgreSQL.

Installed by the migration, and looked after at the end of each `migrate`: SQLite drops a table's triggers when it is remade.
"""

from __future__ import annotations

from typing import Any

TABLE = "scheduler_api_auditentry"
REFUSAL = "the audit trail is append-only"

_SQLITE = tuple(
    f"CREATE TRIGGER IF NOT EXISTS audit_no_{act.lower()} BEFORE {act} ON {TABLE} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    for act in ("UPDATE", "DELETE")
)
_POSTGRESQL = (
    "CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$",
    f"CREATE OR REPLACE TRIGGER audit_no_edit BEFORE UPDATE OR DELETE ON {TABLE} "
    "FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
    f"CREATE OR REPLACE TRIGGER audit_no_truncate BEFORE TRUNCATE ON {TABLE} "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()",
)
_NAMES = {"sqlite": ("audit_no_update", "audit_no_delete"), "postgresql": ("audit_no_edit", "audit_no_truncate")}
_LISTED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgrelid = %s::regclass",
}


def install(connection: Any) -> None:
    """Does nothing where they are already, or where the table is not."""
    if TABLE not in connection.introspection.table_names():
        return
    statements = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}.get(connection.vendor, ())
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def missing(connection: Any) -> list[str]:
    """The triggers that should be there and are not. Raises KeyError for a database that has none of its own."""
    with connection.cursor() as cursor:
        cursor.execute(_LISTED[connection.vendor], [TABLE])
        found = {row[0] for row in cursor.fetchall()}
    return [name for name in _NAMES[connection.vendor] if name not in found]


def lift(connection: Any) -> None:
    """Takes them off. The product never does: only what throws a whole database away, between tests."""
    with connection.cursor() as cursor:
        for name in _NAMES.get(connection.vendor, ()):
            on = f" ON {TABLE}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


def look_after(using: str, **_: object) -> None:
    """Called at the end of each migrate."""
    from django.db import connections

    install(connections[using])
