"""Many at once on PostgreSQL, where writers do not wait for each other by themselves: each thing still happens once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.alerts import outbox
from scheduler_api.alerts.models import Alert, Delivery, Outcome, Recipient, Rule
from scheduler_api.audit import selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import Server
from workers import lease, queueing
from workers.models import Run, RunState

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What each of several threads got, each on a connection of its own; an exception is what it got, too."""
    start = threading.Barrier(THREADS)
    got: list[Any] = [None] * THREADS

    def run(number: int) -> None:
        try:
            connection.ensure_connection()
            start.wait(20)
            got[number] = work(number)
        except Exception as error:
            got[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    return got


@pytest.fixture
def server() -> Server:
    assert connection.vendor == "postgresql", "this file is for PostgreSQL; test_on_postgres.py runs it there"
    return Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1")


def new_run(server: Server, **fields: Any) -> Run:
    return Run.objects.create(scenario="warm-behind-cold", server=server, repetitions=4, seed=1, **fields)


def test_the_audit_chain_is_whole_under_concurrent_writers(server: Server) -> None:
    def write(number: int) -> None:
        for count in range(12):
            with transaction.atomic():
                audit.record("rule.changed", f"{number}.{count}", actor_name=f"writer {number}")

    before = selectors.head().seq
    assert at_once(write) == [None] * THREADS
    found = selectors.verify()
    assert isinstance(found, Head)
    assert found.seq == before + 12 * THREADS
    assert AuditEntry.objects.filter(actor_name="writer 3").count() == 12


def test_a_write_that_is_taken_back_leaves_no_gap_in_the_chain(server: Server) -> None:
    def write(number: int) -> None:
        with transaction.atomic():
            audit.record("rule.changed", str(number))
            if number % 2:
                raise ValueError("taken back")

    got = at_once(write)
    assert [isinstance(each, ValueError) for each in got] == [bool(number % 2) for number in range(THREADS)]
    assert isinstance(selectors.verify(), Head)
    assert AuditEntry.objects.filter(action="rule.changed").count() == THREADS // 2


@pytest.mark.parametrize("sql", ["UPDATE {} SET why = ''", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_database_refuses_to_edit_the_trail(server: Server, sql: str) -> None:
    audit.record("rule.changed", "1")
    with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(sql.format("scheduler_api_auditentry"))
    assert AuditEntry.objects.filter(action="rule.changed").exists()


def test_a_run_that_is_delivered_many_times_is_claimed_once(server: Server) -> None:
    run = new_run(server)
    leases = at_once(lambda number: lease.claim(run.pk, f"worker {number}"))
    (held,) = [each for each in leases if each is not None]
    run.refresh_from_db()
    assert (run.state, run.lease, run.worker) == (RunState.RUNNING, held, f"worker {leases.index(held)}")


def test_a_lost_run_is_buried_once(server: Server) -> None:
    silent = timezone.now() - timedelta(seconds=lease.LOST_AFTER_S + 5)
    run = new_run(server, state=RunState.RUNNING, lease="held", heartbeat_at=silent)
    assert sorted(at_once(lambda _: lease.take_from_the_dead(run, "not heard of"))) == [False] * (THREADS - 1) + [True]


def test_a_server_has_one_active_run_whoever_starts_first(server: Server) -> None:
    got = at_once(lambda _: new_run(server).pk)
    assert sum(isinstance(each, IntegrityError) for each in got) == THREADS - 1
    assert Run.objects.count() == 1


def test_of_the_runs_that_wait_one_is_let_go_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Run] = []
    monkeypatch.setattr(queueing, "send", sent.append)
    first, second = (new_run(server, state=RunState.WAITING) for _ in range(2))
    assert [pk for each in at_once(lambda _: queueing.dispatch()) for pk in each] == [first.pk]
    assert [run.pk for run in sent] == [first.pk]
    second.refresh_from_db()
    assert second.state == RunState.WAITING


@pytest.fixture
def alert(server: Server) -> Alert:
    rule = Rule.objects.filter(kind="down", server=None).first() or Rule.objects.create(kind="down")
    for name in ("pager", "mail"):
        rule.recipients.add(Recipient.objects.create(name=name, channel="webhook", address=f"https://{name}.example.org/"))
    now = timezone.now()
    return Alert.objects.create(
        rule=rule, server=server, kind="down", severity="critical", began_at=now, opened_at=now, last_seen_at=now, text="down"
    )


def test_an_alert_is_announced_once_and_each_message_claimed_once(alert: Alert) -> None:
    assert sum(at_once(lambda _: outbox.announce())) == 2
    assert Delivery.objects.count() == 2
    pk = outbox.due()[0]
    claimed = [each for each in at_once(lambda _: outbox.claim(pk)) if each is not None]
    assert len(claimed) == 1
    row = Delivery.objects.get(pk=pk)
    assert (row.outcome, row.attempts) == (Outcome.SENDING, 1)
