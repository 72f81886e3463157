"""The pages of alerts: none, few and very many; what each role may; what no page shows."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Recipient, Rule, Silence
from scheduler_api.models import Rollup, Server
from tests.support.alerts import alert, rule
from tests.support.sample_states import Json

pytestmark = pytest.mark.django_db
Show = Callable[[str], Server]


@pytest.fixture
def server(shown: Show) -> Server:
    return shown("busy")


def test_without_alerts_the_page_says_what_would_open_one(viewer_client: Client) -> None:
    page = viewer_client.get(reverse("alerts")).text
    assert "Nothing is wrong that a rule names." in page
    assert "alert-n" in page
    assert "open, " not in page


def test_open_alerts_come_worst_first_and_closed_ones_apart(viewer_client: Client, server: Server) -> None:
    starving, down = rule(Kind.STARVING), rule(Kind.DOWN)
    alert(starving, server, ago_s=10, text="chat-warm starves.")
    alert(down, server, ago_s=900, text="Down: connection refused.")
    alert(starving, server, key="client old", closed=True, text="It is over.")
    page = viewer_client.get(reverse("alerts")).text
    assert page.index("Down: connection refused.") < page.index("chat-warm starves.")
    assert "It is over." not in page
    assert "It is over." in viewer_client.get(reverse("alerts"), {"state": "closed"}).text
    assert "Down:" not in viewer_client.get(reverse("alerts"), {"state": "all", "kind": "starving"}).text
    assert "No open alert fits this filter." in viewer_client.get(reverse("alerts"), {"kind": "queue_age"}).text


def test_of_two_thousand_alerts_two_hundred_are_drawn_and_all_are_counted(viewer_client: Client, server: Server) -> None:
    starving = rule(Kind.STARVING)
    first = alert(starving, server)
    names = [field.name for field in Alert._meta.concrete_fields if field.name not in ("id", "key")]
    many = [Alert(key=f"client {n}", **{name: getattr(first, name) for name in names}) for n in range(1999)]
    Alert.objects.bulk_create(many)
    page = viewer_client.get(reverse("alerts")).text
    assert page.count('<tr role="row">') == 201
    assert "The first 200 of 2000 are shown" in page
    assert '2000<span class="vh"> open</span>' in viewer_client.get(reverse("alert-count")).text


def test_a_servers_page_has_a_strip_while_an_alert_is_open(viewer_client: Client, server: Server) -> None:
    stuck = alert(rule(Kind.STUCK_SLOT), server, text="Slot 3 has not moved for 4 min.")
    assert "Slot 3 has not moved for 4 min." in viewer_client.get(reverse("server", args=[server.pk])).text
    assert "Slot 3" in viewer_client.get(reverse("alert-strip", args=[server.pk])).text
    Alert.objects.filter(pk=stuck.pk).update(closed_at=stuck.last_seen_at)
    assert "Slot 3 has not moved" not in viewer_client.get(reverse("alert-strip", args=[server.pk])).text


def test_the_rail_marks_critical_ones(viewer_client: Client, server: Server) -> None:
    alert(rule(Kind.DOWN), server)
    page = viewer_client.get(reverse("overview")).text
    assert '1<span class="vh"> open, 1 critical</span>' in page


class TestRoles:
    def test_a_viewer_neither_acknowledges_nor_silences(self, viewer_client: Client, server: Server) -> None:
        found = alert(rule(Kind.DOWN), server)
        assert viewer_client.post(reverse("alert-acknowledge", args=[found.pk])).status_code == 403
        assert viewer_client.post(reverse("alert-silence"), {"minutes": 60, "reason": "x"}).status_code == 403
        assert "Acknowledge</button>" not in viewer_client.get(reverse("alerts")).text
        assert not Silence.objects.exists()

    def test_an_operator_acknowledges_once(self, operator_client: Client, server: Server) -> None:
        found = alert(rule(Kind.DOWN), server)
        operator_client.post(reverse("alert-acknowledge", args=[found.pk]))
        found.refresh_from_db()
        assert (found.acknowledged_name, found.closed_at) == ("mira", None)
        page = operator_client.post(reverse("alert-acknowledge", args=[found.pk]), follow=True).text
        assert "mira had acknowledged it already." in page

    def test_an_operator_silences_and_ends_a_silence(self, operator_client: Client, server: Server) -> None:
        down = rule(Kind.DOWN)
        alert(down, server)
        given = {"rule": down.pk, "server": server.pk, "minutes": 60, "reason": "planned work"}
        operator_client.post(reverse("alert-silence"), given)
        silence = Silence.objects.get()
        assert (silence.by_name, silence.reason) == ("mira", "planned work")
        assert "planned work" in operator_client.get(reverse("alerts")).text
        assert "open" not in operator_client.get(reverse("alert-count")).text
        operator_client.post(reverse("alert-silence-end", args=[silence.pk]))
        assert "1<span" in operator_client.get(reverse("alert-count")).text

    def test_a_silence_needs_a_reason(self, operator_client: Client) -> None:
        page = operator_client.post(reverse("alert-silence"), {"minutes": 60, "reason": " "}, follow=True).text
        assert "Nothing was silenced" in page
        assert not Silence.objects.exists()

    @pytest.mark.parametrize("name", ["alert-rule-add", "alert-recipient-add"])
    def test_only_an_admin_makes_rules_and_recipients(self, operator_client: Client, admin_client: Client, name: str) -> None:
        assert operator_client.get(reverse(name)).status_code == 403
        assert operator_client.post(reverse(name), {}).status_code == 403
        assert admin_client.get(reverse(name)).status_code == 200

    @pytest.mark.parametrize("name", ["alert-rule", "alert-rule-delete"])
    def test_only_an_admin_edits_rules(self, operator_client: Client, name: str) -> None:
        found = rule(Kind.STARVING)
        assert operator_client.post(reverse(name, args=[found.pk]), {"threshold_s": 1}).status_code == 403
        assert Rule.objects.filter(pk=found.pk, threshold_s=30.0).exists()

    def test_everybody_sees_the_rules(self, viewer_client: Client) -> None:
        rule(Kind.COHORT_HOLD)
        page = viewer_client.get(reverse("alert-rules")).text
        assert "barrier_max_hold_ms" in page
        assert reverse("alert-rule-add") not in page


class TestRules:
    def test_an_admin_changes_a_threshold(self, admin_client: Client) -> None:
        found = rule(Kind.STARVING)
        given = {"threshold_s": "12.5", "for_s": 0, "clear_s": 20, "severity": "critical", "enabled": "on"}
        assert admin_client.post(reverse("alert-rule", args=[found.pk]), given).status_code == 302
        found.refresh_from_db()
        assert (found.threshold_s, found.clear_s, found.severity, found.kind) == (12.5, 20.0, "critical", "starving")

    def test_a_second_rule_for_the_same_is_refused_in_words(self, admin_client: Client) -> None:
        rule(Kind.QUEUE_AGE)
        given = {"kind": "queue_age", "threshold_s": 5, "for_s": 0, "clear_s": 5, "severity": "info", "enabled": "on"}
        response = admin_client.post(reverse("alert-rule-add"), given)
        assert response.status_code == 422
        assert "There is a rule of this kind for all servers already." in response.text


class TestRecipients:
    def test_neither_a_secret_nor_the_rest_of_a_url_is_shown(self, admin_client: Client) -> None:
        given = {
            "name": "chat",
            "channel": "webhook",
            "address": "https://10.0.0.9/hooks/T0K3N?key=K",
            "secret": "s3cr3t",
            "enabled": "on",
        }
        admin_client.post(reverse("alert-recipient-add"), given)
        kept = Recipient.objects.get()
        assert (kept.address, kept.secret) == ("https://10.0.0.9/hooks/T0K3N?key=K", "s3cr3t")
        for page in (reverse("alert-rules"), reverse("alert-recipient", args=[kept.pk])):
            text = admin_client.get(page).text
            assert "https://10.0.0.9/…" in text
            assert "T0K3N" not in text
            assert "s3cr3t" not in text

    def test_empty_fields_keep_what_there_is_and_another_origin_loses_the_secret(self, admin_client: Client) -> None:
        kept = Recipient.objects.create(name="chat", channel="webhook", address="https://10.0.0.9/a", secret="s3cr3t")
        page = reverse("alert-recipient", args=[kept.pk])
        admin_client.post(page, {"name": "talk", "enabled": "on"})
        kept.refresh_from_db()
        assert (kept.name, kept.address, kept.secret) == ("talk", "https://10.0.0.9/a", "s3cr3t")
        admin_client.post(page, {"name": "talk", "enabled": "on", "address": "https://10.0.0.8/a"})
        kept.refresh_from_db()
        assert (kept.address, kept.secret) == ("https://10.0.0.8/a", "")

    @pytest.mark.parametrize(
        ("channel", "address", "why"),
        [
            ("webhook", "http://169.254.169.254/latest", "link-local or metadata address"),
            ("webhook", "http://[fe80::1]/", "link-local or metadata address"),
            ("webhook", "http://metadata.google.internal/", "link-local or metadata address"),
            ("webhook", "ftp://10.0.0.9/", "must begin with http"),
            ("webhook", "http://me:you@10.0.0.9/", "carries a user name"),
            ("webhook", "", "Give the address."),
            ("email", "nobody", "not an e-mail address"),
        ],
    )
    def test_refused_addresses(self, admin_client: Client, channel: str, address: str, why: str) -> None:
        given = {"name": "x", "channel": channel, "address": address, "enabled": "on"}
        response = admin_client.post(reverse("alert-recipient-add"), given)
        assert response.status_code == 422
        assert why in response.text
        assert not Recipient.objects.exists()


class TestAgainstThePast:
    def test_the_words_stand_under_each_servers_name(self, admin_client: Client, server: Server, states: dict[int, Json]) -> None:
        states.clear()
        Server.objects.filter(pk=server.pk).update(enabled=True)
        now = int(time.time()) // 60 * 60
        for n in range(10):
            stall = 45.0 if n == 4 else 1.0
            Rollup.objects.create(server=server, t=now - 600 + 60 * n, step_s=60, observed_s=60, bounds=1, worst_stall_s=stall)
        given: dict[str, str | int] = {"kind": "starving", "threshold_s": 30, "for_s": 0, "clear_s": 10}
        text = admin_client.get(reverse("alert-rule-test"), given).text
        assert "No detail is kept of it." in text
        assert "At most 1 of 10 steps of 10 min had a stall over 30 s, once, the longest 45 s." in text
        assert "They do not tell whether others were served meanwhile" in text

    def test_a_threshold_that_is_none_is_told(self, admin_client: Client) -> None:
        given: dict[str, str | int] = {"kind": "starving", "threshold_s": "x", "for_s": 0, "clear_s": 10}
        assert "Enter a number." in admin_client.get(reverse("alert-rule-test"), given).text

    def test_it_is_for_those_who_edit_rules(self, operator_client: Client) -> None:
        assert operator_client.get(reverse("alert-rule-test")).status_code == 403
