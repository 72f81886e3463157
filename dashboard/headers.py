"""Headers for every answer, besides those of Django's own middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

HEADERS = {
    # nothing here asks for any of them
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    # what one person saw is kept by no cache that others share
    "Cache-Control": "private, no-cache",
}


class HeadersMiddleware:
    """A view's own value of a header stays."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if iscoroutinefunction(self.get_response):
            return self._later(request)
        return _with_headers(self.get_response(request))

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        return _with_headers(await self.get_response(request))


def _with_headers(response: HttpResponseBase) -> HttpResponseBase:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
