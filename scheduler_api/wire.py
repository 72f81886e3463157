"""HTTP to inference servers: no redirects, no proxies from the environment, bounded in time and in bytes.

Connections go through scheduler_api/connecting.py. A client belongs to one Target, and its key goes to that origin alone.
"""

from __future__ import annotations

import socket
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from scheduler_api import strict_json
from scheduler_api.connecting import AsyncGuardedTransport, GuardedTransport
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.targets import AddressRefused, AllowList, Target, allowed_targets, origin_of

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


class KeyOfOrigin(httpx2.Auth):
    """Puts the target's key into requests to its origin, and into no others."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._origin = origin_of(target.base_url) if target.api_key else ""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._origin and origin_of(str(request.url)) == self._origin:
            request.headers["authorization"] = f"Bearer {self._target.api_key}"
        yield request


def async_client(target: Target, read_s: float | None, connections: int = 2) -> httpx2.AsyncClient:
    """`read_s` bounds the wait for each piece of an answer; None waits for as long as the connection stands."""
    return httpx2.AsyncClient(
        headers=_JSON_HEADERS,
        auth=KeyOfOrigin(target),
        timeout=httpx2.Timeout(read_s, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
        transport=AsyncGuardedTransport(allowed_targets(), connections),
    )


def sync_client(target: Target, read_s: float, allow: AllowList | None = None) -> httpx2.Client:
    return httpx2.Client(
        headers=_JSON_HEADERS,
        auth=KeyOfOrigin(target),
        timeout=httpx2.Timeout(read_s, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
        transport=GuardedTransport(allow or allowed_targets()),
    )


def explain(error: Exception) -> NoAnswer:
    """The failure behind an error of the HTTP client, told in an operator's words."""
    if isinstance(error, NoAnswer):
        return error
    if isinstance(error, AddressRefused):
        return NoAnswer("refused", f"the address is refused, {error.text.rstrip('.')}")
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
