"""Sends one message: a signed webhook, or a mail. docs/alerts.md describes both as a receiver sees them."""

from __future__ import annotations

import hashlib
import hmac
import smtplib
import socket
import time
from typing import Any

import httpx2
from django.conf import settings
from django.core.mail import EmailMessage, mailers

from scheduler_api import strict_json, wire
from scheduler_api.alerts import outbox
from scheduler_api.alerts.models import Alert, Channel, Delivery, Recipient
from scheduler_api.health import duration
from scheduler_api.targets import AddressRefused, Target, allowed_webhooks

ANSWER_S = 10.0
#: An answer's body is not read beyond this.
ANSWER_CAP = 4096
TRY_AGAIN = frozenset({408, 425, 429})


class NotTaken(Exception):
    """The recipient certainly did not take the message. `again`: it may take it later."""

    def __init__(self, text: str, *, again: bool) -> None:
        super().__init__(text)
        self.text = text
        self.again = again


class Unanswered(Exception):
    """The message was handed over and nobody said what became of it."""


def send(delivery: Delivery) -> None:
    """Sends a claimed message and records what became of it."""
    recipient = delivery.recipient
    if recipient is None or not recipient.enabled:
        outbox.failed(delivery, outbox.NO_RECIPIENT, again=False)
        return
    try:
        if delivery.channel == Channel.WEBHOOK:
            _post(delivery, recipient)
        else:
            _mail(delivery, recipient)
    except NotTaken as refusal:
        outbox.failed(delivery, refusal.text, again=refusal.again)
    except Unanswered as silence:
        outbox.uncertain(delivery, str(silence))
    else:
        outbox.sent(delivery)


def payload(delivery: Delivery) -> dict[str, Any]:
    """The webhook's body. Times are Unix seconds."""
    body: dict[str, Any] = {"delivery": delivery.pk, "event": f"alert.{delivery.transition}"}
    alert = delivery.alert
    if alert is None:
        return body | {"event": "test", "text": _subject(delivery)}
    return body | {
        "text": _subject(delivery),
        "alert": {
            "id": alert.pk,
            "kind": alert.kind,
            "severity": alert.severity,
            "server": {"id": alert.server_id, "name": alert.server.name} if alert.server is not None else None,
            "slot": alert.slot,
            "client": alert.client,
            "task": alert.task,
            "text": alert.text,
            "began_at": alert.began_at.timestamp(),
            "opened_at": alert.opened_at.timestamp(),
            "closed_at": alert.closed_at.timestamp() if alert.closed_at is not None else None,
            "closed_why": alert.closed_why,
            "peak_s": round(alert.peak_s, 3),
            "limit_s": alert.limit_s,
            "url": link(alert),
        },
    }


def signature(secret: str, t: int, body: bytes) -> str:
    """`t=…,v1=…`: HMAC-SHA256, under the secret, of the time in decimal, a full stop and the body."""
    told = hmac.new(secret.encode(), f"{t}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={t},v1={told}"


def link(alert: Alert) -> str:
    """The alert's page, where the console's own address is known; else the path."""
    return f"{settings.PUBLIC_URL}/alerts/{alert.pk}/"


def _post(delivery: Delivery, recipient: Recipient) -> None:
    body = strict_json.dumps(payload(delivery)).encode()
    headers = {"content-type": "application/json", "x-slotboard-delivery": str(delivery.pk)}
    if recipient.secret:
        headers["x-slotboard-signature"] = signature(recipient.secret, int(time.time()), body)
    try:
        with (
            wire.sync_client(Target(recipient.address), ANSWER_S, allowed_webhooks()) as client,
            client.stream("POST", recipient.address, content=body, headers=headers) as response,
        ):
            status = response.status_code
    except AddressRefused as refusal:
        raise NotTaken(refusal.text, again=False) from refusal
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise NotTaken(wire.explain(error).text, again=True) from error
    except (httpx2.HTTPError, OSError) as error:
        raise Unanswered(f"{wire.explain(error).text}; it may have arrived and is not sent again") from error
    if 300 <= status < 400:
        raise NotTaken(f"answered {status}: redirects are not followed, give the final address", again=False)
    if not 200 <= status < 300:
        raise NotTaken(f"answered {status}", again=status >= 500 or status in TRY_AGAIN)


def _subject(delivery: Delivery) -> str:
    alert = delivery.alert
    if alert is None:
        return "A test message of Slotboard: alerts arrive here."
    where = f"{alert.server.name}: " if alert.server is not None else ""
    if delivery.transition == Delivery.Transition.OPENED:
        return f"[{alert.severity}] {where}{alert.get_kind_display()}. {alert.text}"
    return f"[closed] {where}{alert.get_kind_display()}, after {duration(alert.lasted_s)}. Last: {alert.text}"


def _mail(delivery: Delivery, recipient: Recipient) -> None:
    if "default" not in mailers:
        raise NotTaken("no mail server is set: SLOTBOARD_EMAIL_HOST", again=False)
    subject = " ".join(_subject(delivery).split())
    alert = delivery.alert
    lines = [subject]
    if alert is not None:
        lines += [f"Began {alert.began_at:%Y-%m-%d %H:%M:%S} UTC, opened {alert.opened_at:%H:%M:%S}."]
        lines += (
            [f"Closed {alert.closed_at:%H:%M:%S}{': ' if alert.closed_why else ''}{alert.closed_why}."] if alert.closed_at else []
        )
        lines += [link(alert)]
    headers = {"X-Slotboard-Delivery": str(delivery.pk)}
    short = subject if len(subject) <= 160 else f"{subject[:159]}…"
    message = EmailMessage(short, "\n".join(lines) + "\n", None, [recipient.address], headers=headers)
    try:
        message.send()
    except (smtplib.SMTPConnectError, ConnectionRefusedError, socket.gaierror, smtplib.SMTPHeloError) as error:
        raise NotTaken("the mail server does not answer", again=True) from error
    except smtplib.SMTPAuthenticationError as error:
        raise NotTaken("the mail server does not accept the name and password", again=False) from error
    except smtplib.SMTPRecipientsRefused as error:
        code = max((code for code, _ in error.recipients.values()), default=0)
        raise NotTaken(f"the mail server refused the recipient ({code})", again=400 <= code < 500) from error
    except smtplib.SMTPResponseException as error:
        raise NotTaken(f"the mail server answered {error.smtp_code}", again=400 <= error.smtp_code < 500) from error
    except (smtplib.SMTPException, OSError) as error:
        raise Unanswered("the mail server broke off; the message may have arrived and is not sent again") from error
