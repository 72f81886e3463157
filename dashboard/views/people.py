"""People and their roles, and the groups of servers that roles are held in. Admins of all servers only."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.people import services, sessions
from dashboard.people.forms import GroupForm, PersonForm
from dashboard.people.models import Membership, ServerGroup
from dashboard.people.services import NotDone
from dashboard.roles import Role, at_least
from scheduler_api.models import Server

A_PAGE = 50


@require_safe
@at_least(Role.ADMIN)
def people(request: HttpRequest) -> HttpResponse:
    q = request.GET.get("q", "").strip()[:150]
    found = User.objects.filter(Q(username__icontains=q) | Q(email__icontains=q)).order_by("-is_active", "username")
    page = Paginator(found, A_PAGE).get_page(request.GET.get("page", ""))
    shown = list(page.object_list)
    context = {
        "people": _rows(shown),
        "page": page,
        "q": q,
        "query": urlencode({"q": q}) if q else "",
        "groups": ServerGroup.objects.prefetch_related("servers", "memberships"),
        "all_servers": Server.objects.count(),
    }
    return render(request, "settings/people.html", context)


def _rows(shown: list[User]) -> list[dict[str, Any]]:
    held: dict[int, list[Membership]] = {}
    for row in Membership.objects.filter(user__in=shown).select_related("group"):
        held.setdefault(row.user_id, []).append(row)
    guarded = services.with_second_factor(shown)
    return [{"person": person, "roles": held.get(person.pk, []), "second_factor": person.pk in guarded} for person in shown]


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def person_add(request: HttpRequest) -> HttpResponse:
    form = PersonForm(None, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        made = services.add(form.cleaned_data["username"], form.cleaned_data["email"], form.roles())
        return _with_link(request, made)
    return render(request, "settings/person_add.html", {"form": form}, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def person(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_object_or_404(User, pk=pk)
    form = PersonForm(shown, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            services.give_roles(shown, form.roles())
        except NotDone as refusal:
            form.add_error(None, str(refusal))
        else:
            User.objects.filter(pk=pk).update(email=form.cleaned_data["email"])
            messages.success(request, f"{shown.get_username()} has these roles now; live pages follow within seconds.")
            return redirect("person", pk=pk)
    context = {
        "person": shown,
        "form": form,
        "sessions": sessions.of(shown, request.session.session_key),
        "second_factor": services.has_second_factor(shown),
        "self": shown == request.user,
    }
    return render(request, "settings/person.html", context, status=422 if form.is_bound else 200)


@never_cache
@require_POST
@at_least(Role.ADMIN)
def person_link(request: HttpRequest, pk: int) -> HttpResponse:
    return _with_link(request, get_object_or_404(User, pk=pk, is_active=True))


def _with_link(request: HttpRequest, shown: User) -> HttpResponse:
    """The link is in this answer, and nowhere else."""
    link = request.build_absolute_uri(services.password_link(shown))
    return render(request, "settings/person_link.html", {"person": shown, "link": link})


@require_POST
@at_least(Role.ADMIN)
def person_active(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_object_or_404(User, pk=pk)
    active = request.POST.get("active") == "1"
    try:
        services.set_active(shown, active)
    except NotDone as refusal:
        messages.error(request, str(refusal))
    else:
        name = shown.get_username()
        said = "can log in again." if active else "is deactivated: sessions, tokens and live pages have ended."
        messages.success(request, f"{name} {said}")
    return redirect("person", pk=pk)


@require_POST
@at_least(Role.ADMIN)
def person_sign_out(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_object_or_404(User, pk=pk)
    keep = request.session.session_key if shown == request.user else None
    ended = sessions.end_all(shown, but=keep)
    messages.success(request, f"{ended} session{'s' if ended != 1 else ''} of {shown.get_username()} ended.")
    return redirect("person", pk=pk)


@require_POST
@at_least(Role.ADMIN)
def person_reset(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_object_or_404(User, pk=pk)
    if services.forget_second_factor(shown):
        messages.success(request, f"{shown.get_username()} logs in with the password alone, until a new second factor is set up.")
    else:
        messages.info(request, f"{shown.get_username()} has no second factor.")
    return redirect("person", pk=pk)


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def group_edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    group = get_object_or_404(ServerGroup, pk=pk, everything=False) if pk is not None else None
    form = GroupForm(group, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        kept = services.keep_group(group, form.cleaned_data["name"], [server.pk for server in form.cleaned_data["servers"]])
        messages.success(request, f"{kept.name} is kept.")
        return redirect("people")
    context = {"form": form, "group": group, "members": group.memberships.count() if group else 0}
    return render(request, "settings/group.html", context, status=422 if form.is_bound else 200)


@require_POST
@at_least(Role.ADMIN)
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(ServerGroup, pk=pk, everything=False)
    services.delete_group(group)
    messages.success(request, f"{group.name} is deleted, and the roles in it. Its servers stay.")
    return redirect("people")
