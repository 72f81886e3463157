"""Share links: making, listing and revoking them, and what somebody sees who has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser, User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from ninja.errors import HttpError

from dashboard import roles
from dashboard.csp import CHARTS
from dashboard.people import links
from dashboard.people.forms import LinkForm
from dashboard.people.models import ShareLink
from dashboard.roles import Role
from dashboard.views import experiments, servers
from scheduler_api.history import api as history
from scheduler_api.models import Server
from workers.models import Run


class Request(HttpRequest):
    user: User


@require_safe
def share_list(request: Request) -> HttpResponse:
    """An admin sees everybody's, others their own."""
    admin = roles.may(request.user, Role.ADMIN)
    listed = ShareLink.objects.select_related("server", "run__server", "made_by")
    context = {"links": listed if admin else listed.filter(made_by=request.user), "of_all": admin}
    return render(request, "settings/shares.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def share_server(request: Request, pk: int) -> HttpResponse:
    server = get_object_or_404(Server, pk=pk)
    return _make(request, server, None)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def share_run(request: Request, pk: int) -> HttpResponse:
    run = get_object_or_404(Run.objects.select_related("server"), pk=pk)
    if run.server_id is None:
        raise Http404("An imported run is shared where it was made.")
    return _make(request, run.server, run)


def _make(request: Request, server: Server, run: Run | None) -> HttpResponse:
    """The link is in the answer to its making, and nowhere else."""
    roles.require(request.user, Role.OPERATOR, server)
    form = LinkForm(request.POST if request.method == "POST" else None)
    context: dict[str, Any] = {"form": form, "server": server, "run": run}
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        shown = {"run": run} if run is not None else {"server": server}
        made, secret = links.make(request.user, **shown, lasts=timedelta(hours=given["hours"]), note=given["note"])
        context |= {"made": made, "link": f"{request.build_absolute_uri(reverse('shared', args=[made.pk]))}#{secret}"}
        return render(request, "settings/share.html", context)
    return render(request, "settings/share.html", context, status=422 if form.is_bound else 200)


@require_POST
def share_revoke(request: Request, pk: int) -> HttpResponse:
    link = get_object_or_404(ShareLink.objects.select_related("server", "run__server"), pk=pk)
    if link.made_by != request.user and not roles.may(request.user, Role.ADMIN):
        raise Http404("Not here.")
    links.revoke(link)
    messages.success(request, f"The link to {link.what} is revoked; pages that it had opened close within seconds.")
    return redirect("settings-shares")


# What somebody sees who has a link. Nothing here looks at the session.


@login_not_required
@never_cache
@csp_override(CHARTS)
@require_safe
def shared(request: HttpRequest, pk: int) -> HttpResponse:
    link = links.opened_with(pk, request.COOKIES)
    if link is None:
        return render(request, "shared/open.html", {"pk": pk, "tried": links.cookie_name(pk) in request.COOKIES})
    request.slotboard_link = link  # type: ignore[attr-defined]
    request.user = AnonymousUser()  # whoever looks, looks as somebody without an account
    if link.run is not None and link.run.active:
        return render(request, "shared/waiting.html", {"run": link.run})
    if link.run is not None:
        return _without_ways_out(experiments.run(cast(Any, request), link.run.pk))
    assert link.server_id is not None
    return _without_ways_out(servers.live(request, link.server_id))


_WAY_OUT = re.compile(rb'(<a\b[^>]*?)\shref="(?!#)[^"]*"')


def _without_ways_out(answer: HttpResponse) -> HttpResponse:
    """The same page whose links to other pages are plain words: those ask for a login."""
    answer.content = _WAY_OUT.sub(rb"\1", answer.content)
    return answer


@login_not_required
@never_cache
@require_POST
def shared_open(request: HttpRequest, pk: int) -> HttpResponse:
    """Trades the secret for a cookie."""
    secret = request.POST.get("secret", "").strip()
    link = links.find(pk, secret)
    if link is None:
        return render(request, "shared/open.html", {"pk": pk, "tried": True}, status=403)
    answer = redirect("shared", pk=pk)
    links.keep(answer, request, link, secret)
    return answer


def _no_runs(request: HttpRequest, server_id: int) -> HttpResponse:
    """A live page is shared, not the runs on it."""
    return JsonResponse({"runs": []})


PARTS: dict[str, Callable[[HttpRequest, int], HttpResponse]] = {
    "detail": history.detail,
    "fairness": history.fairness,
    "history": history.history,
    "runs": _no_runs,
}


@login_not_required
@never_cache
@require_safe
def shared_part(request: HttpRequest, pk: int, part: str) -> HttpResponse:
    """What the live page asks for when its range is not now: the same figures as the API gives a viewer."""
    link = links.opened_with(pk, request.COOKIES)
    if link is None and links.cookie_name(pk) in request.COOKIES:
        return JsonResponse({"detail": "This link has ended."}, status=410)
    if link is None or link.server_id is None:
        raise Http404("Not here.")
    request.slotboard_access = links.access_of(link)  # type: ignore[attr-defined]
    try:
        if part == "stall":
            slot = request.GET.get("slot", "")
            if not slot.isdecimal():
                raise HttpError(422, "slot must be a number.")
            return history.stall(request, link.server_id, int(slot))
        if part not in PARTS:
            raise Http404("Not here.")
        return PARTS[part](request, link.server_id)
    except HttpError as refused:
        return HttpResponse(str(refused), status=refused.status_code, content_type="text/plain")
