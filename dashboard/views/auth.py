"""Logging in, and the one public page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


class SignIn(LoginView):
    template_name = "login.html"
    redirect_authenticated_user = True


@login_not_required
@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """For a process runner or a load balancer: the web server answers. It says nothing about inference servers."""
    return HttpResponse("ok", content_type="text/plain")
