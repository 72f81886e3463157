"""The one way to inference servers and webhooks: a host is resolved, its addresses are looked at, one of them is connected to.

Nothing resolves a name a second time in between, so an answer that changes meanwhile (DNS rebinding) changes nothing. TLS and
Host keep the name. Used by the observer, by policies and runs (wire.py), by the load generator, and by webhooks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpcore2
import httpx2

from scheduler_api.targets import AddressRefused, AllowList, as_address, judge, resolve

type SocketOption = Any

KEEPALIVE_EXPIRY_S = 5.0


@cache
def tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than most requests here."""
    return httpx2.create_ssl_context(trust_env=False)


def keepalive() -> list[tuple[int, int, int]]:
    """A host that vanished without a word is noticed within half a minute, also while a long answer is awaited."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


async def resolve_soon(host: str, port: int, allow: AllowList) -> list[str]:
    """`targets.resolve` without holding up the loop."""
    if as_address(host) is not None:
        return resolve(host, port, allow)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "host name not found") from None
    return judge(host, found, allow)


def share(until: float | None, left: int) -> float | None:
    """Seconds for one of `left` addresses that are still to be tried until `until`, on the monotonic clock."""
    return None if until is None else max(0.05, (until - time.monotonic()) / left)


class GuardedBackend(httpcore2.NetworkBackend):
    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        until = None if timeout is None else time.monotonic() + timeout
        options = list(socket_options or ())
        try:
            addresses = resolve(host, port, self._allow)
        except AddressRefused:
            raise
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for number, address in enumerate(addresses, 1):
            try:
                limit = share(until, len(addresses) - number + 1)
                return self._inner.connect_tcp(address, port, limit, local_address, options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpcore2.ConnectError("host name not found")


class AsyncGuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        until = None if timeout is None else time.monotonic() + timeout
        options = list(socket_options or ())
        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve_soon(host, port, self._allow)
        except AddressRefused:
            raise
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("the host name was not resolved in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for number, address in enumerate(addresses, 1):
            try:
                limit = share(until, len(addresses) - number + 1)
                return await self._inner.connect_tcp(address, port, limit, local_address, options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpcore2.ConnectError("host name not found")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class GuardedTransport(httpx2.HTTPTransport):
    """httpx2's own transport over a pool that connects through the guard: it offers no other way to name the backend."""

    def __init__(self, allow: AllowList) -> None:
        super().__init__(verify=tls(), trust_env=False)
        self._pool.close()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls(),
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
            socket_options=keepalive(),
            network_backend=GuardedBackend(allow),
        )


class AsyncGuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, allow: AllowList, connections: int = 100) -> None:
        super().__init__(verify=tls(), trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls(),
            max_connections=connections,
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
            socket_options=keepalive(),
            network_backend=AsyncGuardedBackend(allow),
        )


async def dial(
    protocol: Any, host: str, port: int, allow: AllowList, *, context: ssl.SSLContext | None, limit_s: float
) -> tuple[asyncio.Transport, Any]:
    """A connection for the load generator, which reads its own sockets. Raises AddressRefused, OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + limit_s
    async with asyncio.timeout(limit_s):
        addresses = await resolve_soon(host, port, allow)
    for number, address in enumerate(addresses, 1):
        try:
            async with asyncio.timeout(share(until, len(addresses) - number + 1)):
                name = host if context is not None else None
                return await loop.create_connection(protocol, address, port, ssl=context, server_hostname=name)
        except OSError:  # TimeoutError is one
            if number == len(addresses):
                raise
    raise socket.gaierror(socket.EAI_NONAME, "host name not found")
