"""Where a registered server may lie, and what is sent to it.

Inference servers live on private addresses, so those cannot be blocked. What is blocked is what never is one: link-local
addresses, where clouds keep their metadata services, and anything but http and https. An allow-list narrows the rest.

A host is looked at when it is registered, and again at each connection (scheduler_api/connecting.py), where the addresses that
passed are the ones that are connected to: a name that leads elsewhere meanwhile leads nowhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings

from scheduler_api.exceptions import RegistrationRefused

# Metadata services that do not use a link-local address.
METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text) for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
)
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
#: IPv6 addresses whose last 32 bits are an IPv4 address that a gateway, or the system itself, may go on to.
_CARRIERS = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48"))
BLOCKED = "{host} is a link-local or metadata address, which nothing here connects to."
NOT_ALLOWED = "{host} is not among the allowed addresses; the setting {setting} lists them."

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A server's address as requests need it. `repr` keeps the key out of logs.

    A key that was kept for another origin is left out: the server then says that it wants one.
    """

    base_url: str
    api_key: str = ""

    def __post_init__(self) -> None:
        bound = getattr(self.api_key, "origin", "")
        if bound and bound != origin_of(self.base_url):
            object.__setattr__(self, "api_key", "")

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


def origin_of(url: str) -> str:
    """Scheme, host and port, the port always named: "http://10.0.0.7:80". Raises ValueError for a port that is none."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class AddressRefused(OSError):
    """A host may not be connected to. `text` says why."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _meant(address: Address) -> Address:
    """The IPv4 address within an IPv6 one, where there is one."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if inner := address.ipv4_mapped or address.sixtofour:
        return inner
    if int(address) > 1 and any(address in network for network in _CARRIERS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_blocked(address: Address) -> bool:
    meant = _meant(address)
    never = meant.is_link_local or meant.is_multicast or meant.is_unspecified or int(meant) == 0xFFFFFFFF
    return never or meant in METADATA_ADDRESSES or address in METADATA_ADDRESSES


@dataclass(frozen=True, slots=True)
class AllowList:
    """Host names, "*.suffix" patterns and networks that may be connected to; empty allows all that is not blocked.

    `setting` is named to who is refused.
    """

    entries: tuple[str, ...]
    setting: str

    def has(self, host: str, addresses: Iterable[Address]) -> bool:
        """By its name, or because every one of its addresses lies in a listed network."""
        if not self.entries or any(_named(host, entry) for entry in self.entries):
            return True
        networks = [network for entry in self.entries if (network := _network(entry)) is not None]
        found = [_meant(address) for address in addresses]
        return bool(found) and all(any(address in network for network in networks) for address in found)


#: For use without settings, in benchmarks.
ANYWHERE = AllowList((), "")


def allowed_targets() -> AllowList:
    """For inference servers."""
    return AllowList(tuple(settings.TARGET_ALLOW), "SLOTBOARD_TARGET_ALLOW")


def allowed_webhooks() -> AllowList:
    return AllowList(tuple(settings.WEBHOOK_ALLOW), "SLOTBOARD_WEBHOOK_ALLOW")


def _named(host: str, entry: str) -> bool:
    entry = entry.lower()
    return host == entry or (entry.startswith("*.") and host.endswith(entry[1:]))


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def bad_entries(entries: Iterable[str]) -> list[str]:
    """Those of an allow-list that are neither a host name, nor a pattern, nor a network."""
    return [entry for entry in entries if _network(entry) is None and any(mark in entry.removeprefix("*.") for mark in "/:*@ ")]


def as_address(host: str) -> Address | None:
    """A host that is an address itself, which no resolver needs to be asked about."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def judge(host: str, found: Sequence[Any], allow: AllowList) -> list[str]:
    """The addresses among getaddrinfo's answers for `host`, without repeats.

    Raises AddressRefused unless all of them may be connected to.
    """
    host = host.rstrip(".").lower()
    addresses = list(dict.fromkeys(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
    if host in METADATA_NAMES or any(is_blocked(address) for address in addresses):
        raise AddressRefused(BLOCKED.format(host=host))
    if not allow.has(host, addresses):
        raise AddressRefused(NOT_ALLOWED.format(host=host, setting=allow.setting))
    return [str(address) for address in addresses]


def resolve(host: str, port: int, allow: AllowList) -> list[str]:
    """The addresses to connect to, in the resolver's order. Raises AddressRefused, and another OSError for an unknown name."""
    if (plain := as_address(host)) is not None:
        return judge(host.strip("[]"), [(0, 0, 0, "", (str(plain), port))], allow)
    try:
        return judge(host, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), allow)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "host name not found") from None


def check_host(base_url: str, allow: AllowList | None = None, field: str = "base_url") -> None:
    """Raises RegistrationRefused when the host is, or resolves to, an address that may not be connected to."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".").lower()
    try:
        resolve(host, parts.port or 80, allow or allowed_targets())
    except AddressRefused as refusal:
        raise RegistrationRefused(refusal.text, field) from None
    except OSError:
        _check_name(host, allow or allowed_targets(), field)  # an unknown name is the probe's to report


def _check_name(host: str, allow: AllowList, field: str) -> None:
    try:
        judge(host, [], allow)
    except AddressRefused as refusal:
        raise RegistrationRefused(refusal.text, field) from None
