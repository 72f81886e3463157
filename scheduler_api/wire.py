"""HTTP to inference servers: no redirects, no proxies from the environment, bounded in time and in bytes.

A client belongs to one Target and speaks to its origin alone, so a key never leaves it.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import httpx2

from scheduler_api import strict_json
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.targets import Target

type Failure = Literal["refused", "timeout", "unknown_host", "broken", "too_large"]

CONNECT_S = 3.0
#: What is said of a server that took the request and did not answer it.
LATE = "no answer in time"
BODY_CAP = 8 << 20
_JSON_HEADERS = {"accept": "application/json", "user-agent": "slotboard"}


class NoAnswer(Exception):
    """No whole answer came. `text` says why, without the server's name: "connection refused"."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure
        self.text = text


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        """Raises ValueError."""
        return strict_json.loads(self.body)

    def error_message(self) -> str:
        """What the server says is wrong, from the usual error object; "" when it does not say."""
        try:
            value = self.json()
        except ValueError:
            return ""
        error = value.get("error") if isinstance(value, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return message[:300] if isinstance(message, str) else ""


def _headers(target: Target) -> dict[str, str]:
    return _JSON_HEADERS | ({"authorization": f"Bearer {target.api_key}"} if target.api_key else {})


def _keepalive() -> list[tuple[int, int, int]]:
    """A host that vanished without a word is noticed within half a minute, also while a long answer is awaited."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def async_client(target: Target, read_s: float | None, connections: int = 2) -> httpx2.AsyncClient:
    """`read_s` bounds the wait for each piece of an answer; None waits for as long as the connection stands."""
    limits = httpx2.Limits(max_connections=connections)
    return httpx2.AsyncClient(
        headers=_headers(target),
        timeout=httpx2.Timeout(read_s, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
        transport=httpx2.AsyncHTTPTransport(trust_env=False, socket_options=_keepalive(), limits=limits),
    )


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than most requests here."""
    return httpx2.create_ssl_context(trust_env=False)


def sync_client(target: Target, read_s: float) -> httpx2.Client:
    return httpx2.Client(
        headers=_headers(target),
        timeout=httpx2.Timeout(read_s, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
        verify=_tls(),
    )


def explain(error: Exception) -> NoAnswer:
    """The failure behind an error of the HTTP client, told in an operator's words."""
    if isinstance(error, NoAnswer):
        return error
    if isinstance(error, httpx2.ConnectTimeout):
        return NoAnswer("timeout", f"no connection within {CONNECT_S:g} s")
    if isinstance(error, httpx2.TimeoutException):
        return NoAnswer("timeout", LATE)
    if isinstance(error, httpx2.ConnectError):
        cause = _os_error(error)
        if isinstance(cause, socket.gaierror):
            return NoAnswer("unknown_host", "host name not found")
        if cause is None or isinstance(cause, ConnectionRefusedError) or "refused" in str(error).lower():
            return NoAnswer("refused", "connection refused")
        return NoAnswer("refused", (cause.strerror or str(cause) or "connection failed").lower()[:120])
    return NoAnswer("broken", "connection broken off")


def _os_error(error: BaseException) -> OSError | None:
    """What the system said, which the client wraps several deep, in groups when it tried several addresses."""
    seen: list[BaseException] = [error]
    for current in seen:
        nested = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        seen.extend(link for link in (current.__cause__, current.__context__, *nested) if link is not None and link not in seen)
    return next((current for current in seen if isinstance(current, OSError) and current.errno is not None), None)


async def fetch(client: httpx2.AsyncClient, url: str, *, cap: int = BODY_CAP) -> Answer:
    """GET, whatever the status. Raises NoAnswer."""
    try:
        async with client.stream("GET", url) as response:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > cap:
                    raise NoAnswer("too_large", f"answer larger than {cap >> 20} MiB")
            return Answer(response.status_code, bytes(body), dict(response.headers))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise explain(error) from error


def call(target: Target, method: str, path: str, *, json: Any = None, read_s: float = 10.0, cap: int = BODY_CAP) -> Answer:
    """One request from synchronous code. Raises ServerUnreachable."""
    try:
        with sync_client(target, read_s) as client, client.stream(method, target.base_url + path, json=json) as response:
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > cap:
                    raise NoAnswer("too_large", f"answer larger than {cap >> 20} MiB")
            return Answer(response.status_code, bytes(body), dict(response.headers))
    except (NoAnswer, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise ServerUnreachable(f"{target.base_url} cannot be used: {explain(error).text}.") from error
