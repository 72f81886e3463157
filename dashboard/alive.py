"""That the web server answers, told before the name of the host is looked at: load balancers and runners ask by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

PATH = "/health/"


def answer() -> HttpResponse:
    """It says nothing about inference servers, nor about the database."""
    return HttpResponse("ok", content_type="text/plain")


@sync_and_async_middleware
def alive(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> Any:
            return answer() if _asked(request) else await get_response(request)

        return later
    return lambda request: answer() if _asked(request) else get_response(request)


def _asked(request: HttpRequest) -> bool:
    return request.path_info == PATH and request.method in ("GET", "HEAD")
