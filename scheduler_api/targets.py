"""Where a registered server may lie, and what is sent to it.

Inference servers live on private addresses, so those cannot be blocked. What is blocked is what never is one: link-local
addresses, where clouds keep their metadata services, and anything but http and https.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from scheduler_api.exceptions import RegistrationRefused

# Metadata services that do not use a link-local address.
METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text) for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
)
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A server's address as requests need it. `repr` keeps the key out of logs."""

    base_url: str
    api_key: str = ""

    def __repr__(self) -> str:
        return f"Target({self.base_url!r}, key={'set' if self.api_key else 'none'})"


def clean_url(text: str) -> str:
    """The base URL as it is kept: scheme, host, port and path without a trailing slash.

    Raises RegistrationRefused for another scheme, a user name, a query, no host, or a port that is none.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise RegistrationRefused(f"{text!r} is not a URL.") from None
    if parts.scheme not in ("http", "https"):
        raise RegistrationRefused("The URL must begin with http:// or https://.")
    if not parts.hostname or any(character.isspace() for character in text.strip()):
        raise RegistrationRefused("The URL names no host.")
    if parts.username is not None or parts.password is not None:
        raise RegistrationRefused("The URL carries a user name; put a key into the key field instead.")
    if parts.query or parts.fragment:
        raise RegistrationRefused("The URL carries a query or a fragment; give the server's base address alone.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return urlunsplit((parts.scheme, host if port is None else f"{host}:{port}", parts.path.rstrip("/"), "", ""))


def _unmapped(address: Address) -> Address:
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def is_blocked(address: Address) -> bool:
    plain = _unmapped(address)
    return plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain in METADATA_ADDRESSES


def _addresses_of(host: str) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # an unknown name is the probe's to report
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def check_host(base_url: str) -> None:
    """Raises RegistrationRefused when the host is, or resolves to, a metadata or link-local address."""
    host = (urlsplit(base_url).hostname or "").rstrip(".").lower()
    if host in METADATA_NAMES or any(is_blocked(address) for address in _addresses_of(host)):
        raise RegistrationRefused(f"{host} is a link-local or metadata address, where no inference server is registered.")
