"""Headers for every answer, besides those of Django's own middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

HEADERS = {
    # nothing here asks for any of them
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    # what one person saw is kept by no cache that others share
    "Cache-Control": "private, no-cache",
}


@sync_and_async_middleware
def headers(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """A view's own value of a header stays."""
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> HttpResponseBase:
            return _with_headers(await get_response(request))

        return later
    return lambda request: _with_headers(get_response(request))


def _with_headers(response: HttpResponseBase) -> HttpResponseBase:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
