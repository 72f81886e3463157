"""What is wrong, and what was: alerts, silences, and who was told. A viewer looks, an operator acknowledges and silences."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from dashboard import roles
from dashboard.alert_forms import SilenceForm
from dashboard.roles import Role, at_least
from scheduler_api import selectors as registry
from scheduler_api.alerts import selectors, services
from scheduler_api.alerts.kinds import DEFINITIONS, SEVERITIES, Kind
from scheduler_api.alerts.models import KINDS, Alert, Silence
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import Server

SHOWN = 200
#: What is shown of the server's past around an alert.
AROUND_S = 30


@require_safe
def alerts(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts.html", _listed(request))


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    """The part of the list that is polled."""
    return render(request, "alerts_rows.html", _listed(request))


def _listed(request: HttpRequest) -> dict[str, object]:
    filters = {name: request.GET.get(name, "").strip() for name in ("state", "server", "kind", "severity")}
    state = filters["state"] if filters["state"] in ("closed", "all") else "open"
    server = int(filters["server"]) if filters["server"].isdecimal() else None
    within = roles.visible(request.user)
    found = selectors.find(state=state, server=server, kind=filters["kind"], severity=filters["severity"], within=within)
    listed = list(found[: SHOWN + 1])
    silences = selectors.silences(within)
    return {
        "actable": {each.pk for each in listed if _may_act(request, each.server)},
        "endable": {each.pk for each in silences if _may_act(request, each.server)},
        "shown": selectors.with_silence(listed[:SHOWN]),
        "more": len(listed) > SHOWN,
        "total": found.count() if len(listed) > SHOWN else len(listed),
        "state": state,
        "states": (("open", "Open"), ("closed", "Closed"), ("all", "All")),
        "filters": filters,
        "filtered": any(filters[name] for name in ("server", "kind", "severity")),
        "servers": registry.list_servers(within),
        "kinds": KINDS,
        "severities": SEVERITIES,
        "silences": silences,
        "query": request.GET.urlencode(),
        "may_act": roles.may(request.user, Role.OPERATOR),
        "form": SilenceForm(within=roles.visible(request.user, Role.OPERATOR)),
    }


@require_safe
def alert(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Alert.objects.select_related("server", "rule"), pk=pk)
    shown = selectors.with_silence([found])[0]
    ended = found.closed_at.timestamp() + AROUND_S if found.closed_at else None
    context = {
        "shown": shown,
        "alert": found,
        "definition": DEFINITIONS[Kind(found.kind)],
        "deliveries": selectors.deliveries(found),
        "form": SilenceForm(
            initial={"rule": found.rule_id, "server": found.server_id, "minutes": 60},
            within=roles.visible(request.user, Role.OPERATOR),
        ),
        "may_act": _may_act(request, found.server),
        "past": (found.began_at.timestamp() - AROUND_S, ended),
    }
    return render(request, "alerts_one.html", context)


def _may_act(request: HttpRequest, server: Server | None) -> bool:
    """What is about no server in particular is about all of them."""
    return roles.access_of(request.user).may(Role.OPERATOR, server.pk if server is not None else None)


@require_POST
@at_least(Role.OPERATOR)
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Alert, pk=pk)
    if not _may_act(request, found.server):
        raise PermissionDenied("This alert is about all servers; it needs the role operator on all of them.")
    assert isinstance(request.user, User)
    if not services.acknowledge(found, request.user):
        messages.info(request, f"{found.acknowledged_name} had acknowledged it already.")
    return redirect(_back(request, reverse("alert", args=[pk])))


@require_POST
@at_least(Role.OPERATOR)
def silence(request: HttpRequest) -> HttpResponse:
    form = SilenceForm(request.POST, within=roles.visible(request.user, Role.OPERATOR))
    assert isinstance(request.user, User)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        messages.error(request, f"Nothing was silenced: {field}: {errors[0]}")
        return redirect(_back(request, reverse("alerts")))
    given = form.cleaned_data
    if not _may_act(request, given["server"]):
        raise PermissionDenied("Silencing every server needs the role operator on all of them.")
    try:
        made = services.silence(
            given["rule"], given["server"], timedelta(minutes=given["minutes"]), request.user, given["reason"]
        )
    except RegistrationRefused as refusal:
        messages.error(request, refusal.text)
    else:
        messages.success(request, f"Silent until {made.until:%Y-%m-%d %H:%M} UTC. An alert that is still open then is told then.")
    return redirect(_back(request, reverse("alerts")))


@require_POST
@at_least(Role.OPERATOR)
def silence_end(request: HttpRequest, pk: int) -> HttpResponse:
    ended = get_object_or_404(Silence, pk=pk)
    if not _may_act(request, ended.server):
        raise PermissionDenied("This silence is about all servers; it needs the role operator on all of them.")
    services.end_silence(ended)
    return redirect(_back(request, reverse("alerts")))


def _back(request: HttpRequest, other: str) -> str:
    wanted = request.POST.get("back", "")
    return wanted if url_has_allowed_host_and_scheme(wanted, {request.get_host()}) else other


@require_safe
def count(request: HttpRequest) -> HttpResponse:
    """The rail's number."""
    total, critical = selectors.counts(roles.visible(request.user))
    return render(request, "alerts_count.html", {"total": total, "critical": critical})


@require_safe
def strip(request: HttpRequest, pk: int) -> HttpResponse:
    """What is open on a server, above its page."""
    return render(request, "alerts_strip_rows.html", {"open": selectors.open_of(get_object_or_404(Server, pk=pk).pk)})
