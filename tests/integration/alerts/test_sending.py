"""One message to a real receiver on loopback: what it gets, and what is recorded."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import time
from typing import Any

import pytest
import trustme
from django.utils import timezone
from pytest_django.fixtures import Settings

from scheduler_api.alerts import outbox, sending
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Delivery, Outcome, Recipient
from scheduler_api.models import Server
from tests.support.alerts import alert, rule
from tests.support.receivers import mail_server, webhook
from tests.support.stub_servers import unused_port

pytestmark = pytest.mark.django_db


def message(url: str, *, secret: str = "s3cr3t", channel: str = "webhook", closed: bool = False) -> Delivery:
    """The one message of an alert, claimed."""
    server = Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1")
    recipient = Recipient.objects.create(name="chat", channel=channel, address=url, secret=secret)
    starving = rule(Kind.STARVING)
    starving.recipients.set([recipient])
    alert(starving, server, closed=closed, slot=1, client="chat-warm", task=9)
    assert outbox.announce() == 1
    assert outbox.announce() == 0
    claimed = outbox.claim(outbox.due()[0])
    assert claimed is not None
    assert outbox.claim(claimed.pk) is None
    return claimed


def after(delivery: Delivery) -> Delivery:
    sending.send(delivery)
    delivery.refresh_from_db()
    return delivery


def test_a_signed_webhook() -> None:
    with webhook() as receiver:
        delivery = after(message(f"{receiver.url}/hooks/T?key=K"))
    (got,) = receiver.got
    assert delivery.outcome == Outcome.SENT
    assert got.path == "/hooks/T?key=K"
    assert got.headers["host"] == receiver.url.removeprefix("http://")
    assert got.headers["x-slotboard-delivery"] == str(delivery.pk)
    parts = dict(part.split("=") for part in got.headers["x-slotboard-signature"].split(","))
    told = hmac.new(b"s3cr3t", f"{parts['t']}.".encode() + got.body, hashlib.sha256).hexdigest()
    assert parts["v1"] == told
    assert abs(int(parts["t"]) - time.time()) < 30
    body = got.json()
    assert (body["event"], body["delivery"]) == ("alert.opened", delivery.pk)
    assert (body["alert"]["kind"], body["alert"]["server"]["name"], body["alert"]["slot"]) == ("starving", "bench", 1)
    assert body["text"].startswith("[warning] bench: Starving client.")


def test_without_a_secret_nothing_is_signed() -> None:
    with webhook() as receiver:
        after(message(receiver.url, secret=""))
    assert "x-slotboard-signature" not in receiver.got[0].headers


@pytest.mark.parametrize(
    ("status", "outcome", "error"),
    [
        (204, Outcome.SENT, ""),
        (500, Outcome.PENDING, "answered 500"),
        (429, Outcome.PENDING, "answered 429"),
        (404, Outcome.FAILED, "answered 404"),
        (0, Outcome.UNCERTAIN, "may have arrived"),
    ],
)
def test_what_the_answer_means(status: int, outcome: str, error: str) -> None:
    with webhook(status) as receiver:
        delivery = after(message(receiver.url))
    assert delivery.outcome == outcome
    assert error in delivery.error
    assert len(receiver.got) == 1


def test_a_redirect_is_not_followed() -> None:
    with webhook() as elsewhere, webhook(307, location=elsewhere.url) as receiver:
        delivery = after(message(receiver.url))
    assert delivery.outcome == Outcome.FAILED
    assert "redirects are not followed" in delivery.error
    assert elsewhere.got == []


def test_nobody_listens_so_it_is_tried_again_and_at_last_given_up() -> None:
    delivery = message(f"http://127.0.0.1:{unused_port()}")
    pauses = []
    while after(delivery).outcome == Outcome.PENDING:
        assert delivery.error == "connection refused"
        pauses.append(round((delivery.next_at - timezone.now()).total_seconds()))
        assert outbox.due() == []
        again = outbox.claim(delivery.pk, delivery.next_at)
        assert again is not None
        delivery = again
    assert pauses == [round(pause) for pause in outbox.PAUSES_S]
    assert (delivery.outcome, delivery.attempts) == (Outcome.FAILED, len(outbox.PAUSES_S) + 1)


def test_a_name_that_leads_to_a_metadata_address_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = message("http://hooks.example.org/x")
    leads: list[Any] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr("scheduler_api.targets.socket.getaddrinfo", lambda *args, **options: leads)
    assert after(delivery).outcome == Outcome.FAILED
    assert "link-local or metadata address" in delivery.error


def test_the_address_that_was_looked_at_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as receiver:
        port = int(receiver.url.rpartition(":")[2])
        delivery = message(f"http://hooks.example.org:{port}/x")
        answers, real = iter(["127.0.0.1", "169.254.169.254"]), socket.getaddrinfo

        def leads(host: str, *args: Any, **options: Any) -> Any:
            return real(next(answers) if host == "hooks.example.org" else host, *args, **options)

        monkeypatch.setattr("scheduler_api.targets.socket.getaddrinfo", leads)
        assert after(delivery).outcome == Outcome.SENT
    assert receiver.got[0].headers["host"] == f"hooks.example.org:{port}"


def test_over_tls_the_certificate_is_checked_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    authority, real = trustme.CA(), socket.getaddrinfo
    serves, trusts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("hooks.example.org").configure_cert(serves)
    authority.configure_trust(trusts)
    monkeypatch.setattr("scheduler_api.connecting.tls", lambda: trusts)

    def leads(host: str, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host.endswith("example.org") else host, *args, **options)

    monkeypatch.setattr("scheduler_api.targets.socket.getaddrinfo", leads)
    with webhook(tls=serves) as receiver:
        port = receiver.url.rpartition(":")[2]
        delivery = message(f"https://hooks.example.org:{port}/x")
        assert after(delivery).outcome == Outcome.SENT
        Recipient.objects.update(address=f"https://other.example.org:{port}/x")
        again = outbox.claim(outbox.test(Recipient.objects.get()).pk)
        assert again is not None
        assert after(again).outcome == Outcome.PENDING
    assert len(receiver.got) == 1


def mailer(settings: Settings, port: int) -> None:
    settings.MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
            "OPTIONS": {"host": "127.0.0.1", "port": port, "timeout": 5},
        }
    }


def test_a_mail_about_an_end(settings: Settings) -> None:
    settings.PUBLIC_URL = "https://ops.example.org"
    with mail_server() as server:
        mailer(settings, server.port)
        delivery = after(message("ops@example.org", channel="email", closed=True))
    assert delivery.outcome == Outcome.SENT
    (text,) = server.got
    assert "Subject: [closed] bench: Starving client, after 30 s." in text.replace("\r\n ", " ")
    assert f"https://ops.example.org/alerts/{delivery.alert_id}/" in text
    assert f"X-Slotboard-Delivery: {delivery.pk}" in text


@pytest.mark.parametrize(
    ("refuse", "silent", "outcome"), [(550, False, Outcome.FAILED), (451, False, Outcome.PENDING), (0, True, Outcome.UNCERTAIN)]
)
def test_a_mail_server_that_does_not_take_it(settings: Settings, refuse: int, silent: bool, outcome: str) -> None:
    with mail_server(refuse=refuse, silent=silent) as server:
        mailer(settings, server.port)
        assert after(message("ops@example.org", channel="email")).outcome == outcome


def test_without_a_mail_server_the_recipient_says_so(settings: Settings) -> None:
    settings.MAILERS = {}
    delivery = after(message("ops@example.org", channel="email"))
    assert (delivery.outcome, delivery.error) == (Outcome.FAILED, "no mail server is set: SLOTBOARD_EMAIL_HOST")


def test_a_test_message() -> None:
    with webhook() as receiver:
        recipient = Recipient.objects.create(name="chat", channel="webhook", address=receiver.url)
        claimed = outbox.claim(outbox.test(recipient).pk)
        assert claimed is not None
        assert after(claimed).outcome == Outcome.SENT
    assert receiver.got[0].json()["event"] == "test"
