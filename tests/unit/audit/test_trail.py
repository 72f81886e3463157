"""The trail in the database: appended by one call, kept for good, found again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from io import StringIO

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from scheduler_api import audit
from scheduler_api.audit import guards, selectors
from scheduler_api.audit.chain import Broken, Head
from scheduler_api.audit.models import AuditEntry, Immutable
from scheduler_api.audit.origin import OriginMiddleware
from scheduler_api.audit.selectors import Search
from scheduler_api.models import PolicyChange, Server

pytestmark = pytest.mark.django_db


def three() -> list[AuditEntry]:
    return [audit.record("rule.changed", f"row {number}", actor_name="mira", why="so") for number in range(3)]


def damage(sql: str) -> None:
    """What somebody with the database at hand can do, once the triggers are off."""
    guards.lift(connection)
    with connection.cursor() as cursor:
        cursor.execute(sql)
    guards.install(connection)


def verdict(*args: str) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("verify_audit", *args, stdout=out, stderr=err)
    except SystemExit as end:
        return int(str(end.code)), err.getvalue()
    return 0, out.getvalue()


def test_rows_follow_each_other_without_a_gap() -> None:
    first, second, third = three()
    assert [first.seq, second.seq, third.seq] == [1, 2, 3]
    assert (second.previous, third.previous) == (first.hash, second.hash)
    assert selectors.verify() == Head(3, third.hash)


def test_the_request_tells_who_and_from_where(operator: User) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        row = audit.record("silence.made", "Queue age on every server")
        return HttpResponse(f"{row.actor_name} {row.actor_id} {row.through} {row.address}")

    request = RequestFactory().post("/", REMOTE_ADDR="192.0.2.7")
    request.user = operator
    assert OriginMiddleware(view)(request).content.decode() == f"mira {operator.pk} session 192.0.2.7"  # type: ignore[union-attr]
    request.audit_through = "token ci"  # type: ignore[attr-defined]
    assert "token ci" in OriginMiddleware(view)(request).content.decode()  # type: ignore[union-attr]


def test_without_a_request_the_process_is_the_origin() -> None:
    with audit.acting(audit.Origin(through="worker")):
        assert audit.record("run.stopped", "run 3", actor_name="run 3").through == "worker"
    assert audit.record("server.removed", "atlas").through == "command"


def test_secrets_do_not_reach_it() -> None:
    after = {"api_key": "s3cret", "address": {"webhook_secret": "s3cret", "token": ""}, "barrier_max_generation_tokens": 5}
    row = audit.record("server.changed", "atlas", after=after)
    assert "s3cret" not in row.after
    assert selectors.as_json(row)["after"] == {
        "api_key": "(hidden)",
        "address": {"webhook_secret": "(hidden)", "token": ""},
        "barrier_max_generation_tokens": 5,
    }


def test_text_that_no_database_holds_is_kept_as_far_as_it_can_be() -> None:
    audit.record("run.started", "a\x00b \ud800", after={"x": "\x00"}, why="\udfff")
    assert isinstance(selectors.verify(), Head)


def test_models_neither_edit_nor_delete() -> None:
    row = three()[0]
    row.why = "else"
    for act in (row.save, row.delete, AuditEntry.objects.all().delete, lambda: AuditEntry.objects.update(why="else")):
        with pytest.raises(Immutable):
            act()
    with pytest.raises(Immutable):
        AuditEntry.objects.bulk_create([])


@pytest.mark.parametrize("sql", ["UPDATE scheduler_api_auditentry SET why = 'else'", "DELETE FROM scheduler_api_auditentry"])
def test_the_database_neither_edits_nor_deletes(sql: str) -> None:
    three()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert AuditEntry.objects.filter(why="so").count() == 3


def test_the_command_finds_a_whole_trail_whole() -> None:
    last = three()[-1]
    assert verdict() == (0, f"The audit trail is whole: 3 rows. Its newest row, to be noted elsewhere: 3:{last.hash}\n")
    assert verdict("--expect", f"3:{last.hash}")[0] == 0


@pytest.mark.parametrize(
    ("sql", "row", "words"),
    [
        ("UPDATE scheduler_api_auditentry SET why = 'else' WHERE seq = 2", 2, "not what was written"),
        ("UPDATE scheduler_api_auditentry SET at = '2020-01-01 00:00:00+00:00' WHERE seq = 1", 1, "not what was written"),
        ("DELETE FROM scheduler_api_auditentry WHERE seq = 2", 3, "row 2 is missing"),
        ("DELETE FROM scheduler_api_auditentry WHERE seq = 1", 2, "row 1 is missing"),
    ],
)
def test_the_command_names_the_first_broken_row(sql: str, row: int, words: str) -> None:
    three()
    damage(sql)
    assert isinstance(selectors.verify(), Broken)
    code, said = verdict()
    assert code == 1
    assert f"broken at row {row}: " in said
    assert words in said


def test_rows_cut_off_at_the_end_are_found_by_a_head_noted_elsewhere() -> None:
    noted = three()[-1]
    damage("DELETE FROM scheduler_api_auditentry WHERE seq = 3")
    assert verdict()[0] == 0
    code, said = verdict("--expect", f"3:{noted.hash}")
    assert (code, "cut off" in said) == (1, True)
    audit.record("rule.changed", "another")
    assert "made anew" in verdict("--expect", f"3:{noted.hash}")[1]


def test_a_database_without_its_triggers_is_named() -> None:
    three()
    guards.lift(connection)
    code, said = verdict()
    guards.install(connection)
    assert code == 1
    assert "does not guard it" in said


def test_it_is_searched_by_who_what_server_text_and_time() -> None:
    atlas = Server.objects.create(name="atlas", kind="engine", base_url="http://127.0.0.1:1")
    one = audit.record("policy.switched", "phase: continuous to barrier", server=atlas, actor_name="mira", why="streams stutter")
    two = audit.record("recipient.changed", "ops", actor_name="ada", after={"host": "hooks.example.org"})
    for search, found in (
        (Search(), [two, one]),
        (Search(who="MIR"), [one]),
        (Search(what="policy"), [one]),
        (Search(what="policy.switched"), [one]),
        (Search(what="pol"), []),
        (Search(server=atlas.pk), [one]),
        (Search(text="stutter barrier"), [one]),
        (Search(text="example.org"), [two]),
        (Search(since=two.at), [two]),
        (Search(until=two.at), [one]),
        (Search(outcome="failed"), []),
    ):
        assert list(selectors.find(search)) == found, search
    assert selectors.nouns() == ["policy", "recipient"]


def test_an_export_is_no_formula() -> None:
    audit.record("scenario.kept", "=HYPERLINK(1)", actor_name="+1", why=" @x")
    header, row = selectors.as_cells(selectors.find(Search()))
    told = dict(zip(header, row, strict=True))
    assert (told["subject"], told["actor_name"], told["why"]) == ("'=HYPERLINK(1)", "'+1", "' @x")


def test_policy_changes_from_before_the_trail_are_its_first_rows() -> None:
    migration = import_module("scheduler_api.migrations.0007_audit")
    server = Server.objects.create(name="atlas", kind="engine", base_url="http://127.0.0.1:1")
    for number, outcome in enumerate(("applied", "refused")):
        PolicyChange.objects.create(
            server=server, actor_name="mira", old={"phase": "continuous"}, changes={"phase": "barrier"}, reason=f"why {number}",
            outcome=outcome,
        )  # fmt: skip
    migration.chain_policy_changes(apps, None)
    head = selectors.verify()
    assert isinstance(head, Head)
    assert head.seq == 2
    first, second = AuditEntry.objects.order_by("seq")
    assert (first.subject, first.why, first.outcome, second.outcome) == (
        "phase: continuous to barrier",
        "why 0",
        "done",
        "refused",
    )
    assert first.at == PolicyChange.objects.order_by("pk")[0].at
    assert audit.record("rule.changed", "and on").previous == second.hash


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_make_one_chain() -> None:
    def write(number: int) -> None:
        try:
            for each in range(4):
                audit.record("rule.changed", f"{number}.{each}")
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    head = selectors.verify()
    assert isinstance(head, Head)
    assert head.seq == 16
