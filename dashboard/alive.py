"""That the web server answers, told before the name of the host is looked at: load balancers and runners ask by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

PATH = "/health/"


def answer() -> HttpResponse:
    """It says nothing about inference servers, nor about the database."""
    return HttpResponse("ok", content_type="text/plain")


class AliveMiddleware:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if request.path_info == PATH and request.method in ("GET", "HEAD"):
            return _soon(answer()) if iscoroutinefunction(self.get_response) else answer()
        return self.get_response(request)


async def _soon(response: HttpResponse) -> HttpResponse:
    return response
