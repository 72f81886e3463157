"""Settings of one's own: the account, sessions, tokens."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard import roles
from dashboard.people import services, sessions, tokens
from dashboard.people.forms import TokenForm
from dashboard.people.models import ApiToken, Membership, Scope
from dashboard.roles import Role


class Request(HttpRequest):
    user: User


@require_safe
def account(request: Request) -> HttpResponse:
    factors = {row.type: row for row in Authenticator.objects.filter(user=request.user)}
    codes = factors.get(Authenticator.Type.RECOVERY_CODES)
    context = {
        "memberships": Membership.objects.filter(user=request.user).select_related("group"),
        "second_factor": services.has_second_factor(request.user),
        "codes_left": len(codes.wrap().get_unused_codes()) if codes is not None else 0,
        "has_password": request.user.has_usable_password(),
    }
    return render(request, "settings/account.html", context)


@require_safe
def session_list(request: Request) -> HttpResponse:
    return render(request, "settings/sessions.html", {"sessions": sessions.of(request.user, request.session.session_key)})


@require_POST
def session_end(request: Request, pk: int) -> HttpResponse:
    if not sessions.end(request.user, pk):
        raise Http404("Not here.")
    messages.success(request, "That session has ended; what it had open closes within seconds.")
    return redirect("settings-sessions")


@require_POST
def session_end_others(request: Request) -> HttpResponse:
    ended = sessions.end_all(request.user, but=request.session.session_key)
    messages.success(request, f"{ended} other session{'s have' if ended != 1 else ' has'} ended. This one goes on.")
    return redirect("settings-sessions")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def token_list(request: Request) -> HttpResponse:
    """A new token's secret is in the answer to its making, and nowhere else."""
    form = TokenForm(request.user, request.POST if request.method == "POST" else None)
    made = secret = None
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        made, secret = tokens.make(request.user, given["name"], Scope(given["scope"]), group=given["group"], lasts=form.lasts())
        form = TokenForm(request.user)
    admin = roles.may(request.user, Role.ADMIN)
    listed = ApiToken.objects.select_related("user", "group")
    context = {
        "form": form,
        "made": made,
        "secret": secret,
        # Those that work first, the newest at the top.
        "tokens": sorted(listed if admin else listed.filter(user=request.user), key=lambda token: not token.valid),
        "of_all": admin,
        "has_role": roles.role_of(request.user) is not None,
    }
    return render(request, "settings/tokens.html", context, status=422 if form.is_bound else 200)


@require_POST
def token_revoke(request: Request, pk: int) -> HttpResponse:
    """One's own; an admin anybody's."""
    token = get_object_or_404(ApiToken.objects.select_related("user"), pk=pk)
    if token.user != request.user and not roles.may(request.user, Role.ADMIN):
        raise Http404("Not here.")
    tokens.revoke(token)
    messages.success(request, f"{token.name} is revoked; nothing gets in with it any more.")
    return redirect("settings-tokens")
