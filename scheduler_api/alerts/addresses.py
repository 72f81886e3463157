"""Where alerts may be sent. Webhooks on private addresses are wanted; link-local and metadata addresses are refused, at entry and
again when connecting, as for inference servers (scheduler_api/targets.py)."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.targets import allowed_webhooks, check_host


def clean_webhook(text: str) -> str:
    """Raises RegistrationRefused for another scheme, a user name, no host, or a port that is none."""
    text = text.strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise RegistrationRefused("That is not a URL.", "address") from None
    if parts.scheme not in ("http", "https"):
        raise RegistrationRefused("The URL must begin with http:// or https://.", "address")
    if not parts.hostname or any(character.isspace() or ord(character) < 33 for character in text):
        raise RegistrationRefused("The URL names no host.", "address")
    if parts.username is not None or parts.password is not None:
        raise RegistrationRefused("The URL carries a user name; a webhook is signed with its secret instead.", "address")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return urlunsplit((parts.scheme, host if port is None else f"{host}:{port}", parts.path, parts.query, ""))


def clean_email(text: str) -> str:
    """Raises RegistrationRefused."""
    try:
        validate_email(text.strip())
    except ValidationError:
        raise RegistrationRefused("That is not an e-mail address.", "address") from None
    return text.strip()


def check(url: str) -> None:
    """Raises RegistrationRefused for an address that may not be connected to; an unknown name is told when sending."""
    check_host(url, allowed_webhooks(), "address")


def origin(url: str) -> str:
    """What of a webhook's URL is shown: the rest may be a secret."""
    parts = urlsplit(url)
    more = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{more}"
