"""Who acts, and from where: known from the request that is being answered, or told by `acting` and `this_process`.

What authenticates a request by other means than the session names it: `request.audit_through = "token ci"`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase


@dataclass(frozen=True, slots=True)
class Origin:
    """`through` is "session", "login", "token ci", "share 3", "worker", "observer" or "command"; `address` the peer's, or ""."""

    actor_id: int | None = None
    actor_name: str = ""
    through: str = ""
    address: str = ""


_request: ContextVar[HttpRequest | None] = ContextVar("slotboard_audit_request", default=None)
_origin: ContextVar[Origin | None] = ContextVar("slotboard_audit_origin", default=None)
_process = Origin(through="command")


def current() -> Origin:
    """The innermost `acting`, else the request, else what `this_process` said."""
    if (origin := _origin.get()) is not None:
        return origin
    request = _request.get()
    return _of(request) if request is not None else _process


def answering() -> bool:
    """Whether a request is being answered: not so in a command, a task or a test that calls a function."""
    return _request.get() is not None


def _of(request: HttpRequest) -> Origin:
    user: Any = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    return Origin(
        actor_id=user.pk if known else None,
        actor_name=user.get_username() if known else "",
        through=str(getattr(request, "audit_through", "session")),
        address=str(request.META.get("REMOTE_ADDR", "")),
    )


@contextmanager
def acting(origin: Origin) -> Iterator[None]:
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def this_process(through: str) -> None:
    """What stands as the origin wherever no request is answered: "worker", "observer"."""
    global _process
    _process = Origin(through=through)


class OriginMiddleware:
    """Keeps the request at hand while it is answered, without a thread switch under ASGI."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer(request)
        token = _request.set(request)
        try:
            return cast(HttpResponseBase, self.get_response(request))
        finally:
            _request.reset(token)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        token = _request.set(request)
        try:
            return await cast(Awaitable[HttpResponseBase], self.get_response(request))
        finally:
            _request.reset(token)
