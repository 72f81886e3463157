"""Which messages are made, and that none is made twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from scheduler_api.alerts import outbox, selectors, services
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Delivery, Outcome, Recipient, Rule
from scheduler_api.models import Server
from tests.support.alerts import alert, rule

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1")


@pytest.fixture
def told(server: Server) -> Rule:
    """A rule with a recipient that is in use and one that is not."""
    made = rule(Kind.STARVING)
    for name, enabled in (("chat", True), ("old", False)):
        made.recipients.add(Recipient.objects.create(name=name, channel="webhook", address="http://10.0.0.9/", enabled=enabled))
    return made


def made() -> list[tuple[str, str]]:
    return [(each.transition, each.recipient_name) for each in Delivery.objects.order_by("pk")]


def close(found: Alert) -> None:
    Alert.objects.filter(pk=found.pk).update(closed_at=timezone.now())


def test_one_message_when_it_opens_and_one_when_it_ends(told: Rule, server: Server) -> None:
    found = alert(told, server)
    assert [outbox.announce() for _ in range(3)] == [1, 0, 0]
    close(found)
    assert [outbox.announce() for _ in range(3)] == [1, 0, 0]
    assert made() == [("opened", "chat"), ("closed", "chat")]


def test_what_ended_before_anybody_was_told_is_told_once(told: Rule, server: Server) -> None:
    alert(told, server, closed=True)
    outbox.announce()
    outbox.announce()
    assert made() == [("closed", "chat")]


def test_what_ended_long_ago_is_told_to_nobody(told: Rule, server: Server) -> None:
    alert(told, server, ago_s=3 * 3600.0, closed=True)
    assert outbox.announce() == 0


def test_silenced_until_the_end_nobody_is_told_and_later_if_it_is_still_open(told: Rule, server: Server, operator: User) -> None:
    alert(told, server)
    silence = services.silence(told, server, timedelta(hours=1), operator, "planned work")
    assert outbox.announce() == 0
    services.end_silence(silence)
    assert outbox.announce() == 1
    assert made() == [("opened", "chat")]


def test_a_silence_of_another_server_or_rule_covers_nothing(told: Rule, server: Server, operator: User) -> None:
    other = Server.objects.create(name="other", kind="engine", base_url="http://127.0.0.1:2")
    services.silence(told, other, timedelta(hours=1), operator, "planned work")
    services.silence(rule(Kind.DOWN), None, timedelta(hours=1), operator, "planned work")
    alert(told, server)
    assert outbox.announce() == 1


def test_what_opened_and_ended_under_a_silence_is_told_to_nobody(told: Rule, server: Server, operator: User) -> None:
    services.silence(None, None, timedelta(hours=1), operator, "planned work")
    found = alert(told, server)
    outbox.announce()
    close(found)
    assert outbox.announce() == 0


def test_what_is_counted_is_what_is_not_silenced(told: Rule, server: Server, operator: User) -> None:
    other = Server.objects.create(name="other", kind="engine", base_url="http://127.0.0.1:2")
    down = rule(Kind.DOWN)
    for of, on in ((told, server), (told, other), (down, server), (rule(Kind.OBSERVER_LOST), None)):
        alert(of, on)
    assert selectors.counts() == (4, 2)
    services.silence(told, server, timedelta(hours=1), operator, "one rule on one server")
    assert selectors.counts() == (3, 2)
    services.silence(None, server, timedelta(hours=1), operator, "one server")
    assert selectors.counts() == (2, 1)
    services.silence(told, None, timedelta(hours=1), operator, "one rule")
    assert selectors.counts() == (1, 1)
    services.silence(None, None, timedelta(hours=1), operator, "everything")
    assert selectors.counts() == (0, 0)


def test_a_message_whose_worker_died_is_not_sent_again(told: Rule, server: Server) -> None:
    alert(told, server)
    outbox.announce()
    (pk,) = outbox.due()
    assert outbox.claim(pk) is not None
    later = timezone.now() + timedelta(seconds=outbox.CLAIM_S + 1)
    assert outbox.bury() == 0
    assert outbox.bury(later) == 1
    assert outbox.due(later) == []
    row = Delivery.objects.get()
    assert (row.outcome, row.error) == (Outcome.UNCERTAIN, outbox.DIED)


def test_alerts_that_ended_long_ago_are_dropped_and_open_ones_stay(told: Rule, server: Server) -> None:
    old, still = alert(told, server, closed=True), alert(told, server, key="client old", ago_s=200 * 86_400.0)
    outbox.announce()
    assert outbox.drop_ended(timezone.now() - timedelta(days=1)) == 0
    assert outbox.drop_ended(timezone.now() + timedelta(days=1)) == 1
    assert list(Alert.objects.values_list("pk", flat=True)) == [still.pk]
    assert not Delivery.objects.filter(alert_id=old.pk).exists()
