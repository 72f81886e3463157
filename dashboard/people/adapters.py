"""What django-allauth asks us: nobody signs up, admins make accounts, and messages are in our own words."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, ClassVar

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from dashboard.people.models import Membership, ServerGroup

_WORDS = {
    "account/messages/password_changed.txt": "The password is changed; sessions elsewhere have ended.",
    "mfa/messages/totp_activated.txt": "A code is asked for at every login from now on.",
    "mfa/messages/totp_deactivated.txt": "The second factor is off; the password alone logs in.",
    "mfa/messages/recovery_codes_generated.txt": "These are new recovery codes. Each works once; keep them apart from the phone.",
}


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth carries no types
    error_messages: ClassVar = DefaultAccountAdapter.error_messages | {
        "enter_current_password": "This is not the present password.",
        "incorrect_password": "The password is wrong.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return request.META.get("REMOTE_ADDR") or "0.0.0.0"  # a web server behind a Unix socket has no address to tell

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        messages.error(request, "This account is deactivated. An admin can activate it again.")
        return redirect("login")

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        words = message or _WORDS.get(message_template or "", "")
        if words:
            messages.add_message(request, level, words)


class SocialAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """An identity provider is trusted to say who exists: a first login may make the account, with a role or none."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return bool(settings.OIDC_MAKE_ACCOUNTS)

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Addresses are words here: they neither find an account nor stand in the way of one."""
        sociallogin.email_addresses = []

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True  # there is no form to fill in

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        if settings.OIDC_ROLE:
            Membership.objects.get_or_create(user=user, group=ServerGroup.of_all(), defaults={"role": settings.OIDC_ROLE})
        return user


class MfaAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets of second factors lie encrypted in the database, under a key made from the secret key."""

    error_messages: ClassVar = DefaultMFAAdapter.error_messages | {"incorrect_code": "The code is wrong, or was used already."}

    def _fernet(self) -> Fernet:
        key = hashlib.sha256(b"slotboard second factors" + settings.SECRET_KEY.encode()).digest()
        return Fernet(base64.urlsafe_b64encode(key))

    def encrypt(self, text: str) -> str:
        return self._fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return self._fernet().decrypt(encrypted_text.encode()).decode()
