"""Where alerts may be sent. Webhooks on private addresses are wanted; link-local and metadata addresses are refused, at entry and
again when sending, and what is connected to is the very address that was looked at."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.targets import METADATA_NAMES, is_blocked

REFUSED = "{host} is a link-local or metadata address, where no webhook is called."


@dataclass(frozen=True, slots=True)
class Place:
    """A webhook's URL with its host resolved. `url` names the address, `host` what goes into Host and TLS."""

    url: str
    host: str
    authority: str


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


def place(url: str) -> Place:
    """Resolves the host. Raises RegistrationRefused when any of its addresses is blocked, OSError when it is not found."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    if host in METADATA_NAMES:
        raise RegistrationRefused(REFUSED.format(host=host), "address")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("host name not found") from error
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    if not addresses or any(is_blocked(address) for address in addresses):
        raise RegistrationRefused(REFUSED.format(host=host), "address")
    first = addresses[0]
    shown = f"[{first}]" if first.version == 6 else str(first)
    return Place(urlunsplit((parts.scheme, f"{shown}:{port}", parts.path, parts.query, "")), host, parts.netloc)


def check(url: str) -> None:
    """Raises RegistrationRefused for a blocked address; an unknown name is told when sending."""
    try:
        place(url)
    except OSError:
        return


def origin(url: str) -> str:
    """What of a webhook's URL is shown: the rest may be a secret."""
    parts = urlsplit(url)
    more = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{more}"
