"""Pages of one server, run, alert or silence are for those who may see its server; to others they do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard import roles
from scheduler_api.alerts.models import Alert, Silence
from scheduler_api.models import Server
from workers.models import Run

type Find = Callable[[int], Server | None]


def _server(pk: int) -> Server | None:
    return Server.objects.get(pk=pk)


def _of_run(pk: int) -> Server | None:
    return Run.objects.select_related("server").get(pk=pk).server


def _of_alert(pk: int) -> Server | None:
    return Alert.objects.select_related("server").get(pk=pk).server


def _of_silence(pk: int) -> Server | None:
    return Silence.objects.select_related("server").get(pk=pk).server


#: Whose server a route is about, by what the route begins with. The server of an alert or silence may be None: it is about all.
ROUTES: tuple[tuple[str, Find], ...] = (
    ("servers/<int:pk>/", _server),
    ("experiments/<int:pk>/", _of_run),
    ("alerts/strip/<int:pk>/", _server),
    ("alerts/silences/<int:pk>/", _of_silence),
    ("alerts/<int:pk>/", _of_alert),
)


class AccessMiddleware:
    """Keeps the server in `request.slotboard_server`, where `at_least` finds it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> None:
        match = request.resolver_match
        if match is None or not request.user.is_authenticated:
            return
        find = next((find for prefix, find in ROUTES if match.route.startswith(prefix)), None)
        if find is None:
            return
        try:
            server = find(kwargs["pk"])
        except (Server.DoesNotExist, Run.DoesNotExist, Alert.DoesNotExist, Silence.DoesNotExist):
            raise Http404("Not here.") from None
        held = roles.access_of(request.user)
        seen = held.may(roles.Role.VIEWER, server.pk) if server is not None else held.best() is not None
        if not seen:
            raise Http404("Not here.")
        if server is not None:
            request.slotboard_server = server  # type: ignore[attr-defined]
