"""Logging in, setting a first password, and the one public page."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.account.views import PasswordChangeView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, PasswordResetConfirmView
from django.core.exceptions import PermissionDenied
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse_lazy
from django.views.decorators.http import require_safe

from dashboard import alive
from dashboard.people.forms import PASSWORD_RULES, SignInForm
from scheduler_api import audit


class SignIn(LoginView):
    """Name and password here; then whatever else the account asks for, a code from the phone, through django-allauth."""

    template_name = "login.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        login = Login(user=user, redirect_url=self.get_success_url())
        answer: HttpResponse = perform_password_login(self.request, {"username": user.get_username()}, login)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"oidc_name": settings.OIDC_NAME, "oidc_id": settings.OIDC_ID}


class Welcome(PasswordResetConfirmView):
    """The one-time link that an admin hands out. The token moves from the address into the session before the form is shown."""

    template_name = "welcome.html"
    success_url = reverse_lazy("login")

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        audit.record("password.set", form.user.get_username(), actor=form.user, why="with the link of an admin")
        messages.success(self.request, "The password is set. Log in with it.")
        return answer


class PasswordChange(PasswordChangeView):  # type: ignore[misc]  # allauth carries no types
    """Not for somebody who comes through an identity provider and has no password here."""

    success_url = reverse_lazy("settings")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if isinstance(request.user, User) and not request.user.has_usable_password():
            raise PermissionDenied("This account has no password here: it logs in through the identity provider.")
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return answer

    def get_success_url(self) -> str:
        return str(self.success_url)

    def get_form(self, form_class: Any = None) -> BaseForm:
        form: BaseForm = super().get_form(form_class)
        for field, label in (("oldpassword", "Present password"), ("password1", "New password"), ("password2", "Again")):
            form.fields[field].label = label
            form.fields[field].widget.attrs.pop("placeholder", None)
        form.fields["password1"].help_text = PASSWORD_RULES
        return form


@login_not_required
@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """The name of the address; the middleware answers before it comes here."""
    return alive.answer()
