"""Logins and what belongs to them, in the audit trail: successes, failures, lock-outs, ends, passwords, second factors.

Only what comes over HTTP. What somebody typed as a name is not written down unless somebody has that name: people type passwords
there. Whoever tries many times adds few rows: one a minute for a name and address, and a few a minute from all addresses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allauth.account.signals import password_changed
from allauth.mfa import signals as mfa
from allauth.mfa.models import Authenticator
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest
from django.utils import timezone

from dashboard.people import sessions
from scheduler_api import audit
from scheduler_api.audit import origin
from scheduler_api.audit.models import AuditEntry
from scheduler_api.audit.service import REFUSED

FAILED, LOCKED = "login.failed", "login.locked"
NOBODY = "a name that nobody has"
OVERFLOW = "more than are written down one by one"
MINUTE = timedelta(minutes=1)
#: Failures written down in a minute, whatever names and addresses they have.
MOST_A_MINUTE = 20
_FACTORS = {Authenticator.Type.TOTP: "authenticator app", Authenticator.Type.RECOVERY_CODES: "recovery codes"}


def connect() -> None:
    """Once, when the process starts."""
    for signal, receiver in (
        (user_logged_in, _logged_in),
        (user_logged_out, _logged_out),
        (user_login_failed, _failed),
        (user_locked_out, _locked),
        (password_changed, _password_changed),
        (mfa.authentication_failed, _wrong_code),
        (mfa.authenticator_added, _factor_added),
        (mfa.authenticator_removed, _factor_removed),
        (mfa.authenticator_reset, _factor_reset),
    ):
        signal.connect(receiver, dispatch_uid=f"audit {receiver.__name__}")


def _logged_in(request: HttpRequest | None = None, user: User | None = None, **_: Any) -> None:
    if origin.answering() and request is not None and user is not None:
        program = sessions.words(request.META.get("HTTP_USER_AGENT", ""))
        audit.record("login.succeeded", user.get_username(), actor=user, after={"program": program}, through="login")


def _logged_out(user: User | None = None, **_: Any) -> None:
    if origin.answering() and user is not None:
        audit.record("login.ended", user.get_username(), actor=user)


def _failed(credentials: dict[str, Any], **_: Any) -> None:
    if origin.answering():
        _record_few(FAILED, _known(credentials.get("username")), MINUTE, "name or password is wrong")


def _wrong_code(user: User, **_: Any) -> None:
    if origin.answering():
        _record_few(FAILED, user.get_username(), MINUTE, "the code is wrong")


def _locked(username: str | None = None, **_: Any) -> None:
    if origin.answering():
        cool_off = timedelta(hours=settings.AXES_COOLOFF_TIME)
        why = f"{settings.AXES_FAILURE_LIMIT} failed logins; locked at this address for {cool_off // MINUTE} minutes"
        _record_few(LOCKED, _known(username), cool_off, why)


def _known(name: object) -> str:
    found = User.objects.filter(username=name).first() if isinstance(name, str) else None
    return found.get_username() if found is not None else NOBODY


def _record_few(action: str, subject: str, every: timedelta, why: str) -> None:
    """Unless the same was written down within `every`, or too much within the last minute."""
    now, address = timezone.now(), origin.current().address
    rows = AuditEntry.objects.filter(action=action)
    if rows.filter(at__gt=now - every, subject=subject, address=address, why=why).exists():
        return
    if rows.filter(at__gt=now - MINUTE).count() < MOST_A_MINUTE:
        audit.record(action, subject, why=why, outcome=REFUSED, through="login")
    elif not rows.filter(at__gt=now - MINUTE, subject=OVERFLOW).exists():
        audit.record(action, OVERFLOW, why=f"{MOST_A_MINUTE} in this minute already", outcome=REFUSED, through="login")


def _password_changed(user: User, **_: Any) -> None:
    audit.record("password.changed", user.get_username(), actor=user)


def _factor_added(user: User, authenticator: Authenticator, **_: Any) -> None:
    audit.record("second_factor.added", f"{_factor(authenticator)} of {user.get_username()}", actor=user)


def _factor_removed(user: User, authenticator: Authenticator, **_: Any) -> None:
    audit.record("second_factor.removed", f"{_factor(authenticator)} of {user.get_username()}", actor=user)


def _factor_reset(user: User, authenticator: Authenticator, **_: Any) -> None:
    audit.record("second_factor.renewed", f"{_factor(authenticator)} of {user.get_username()}", actor=user)


def _factor(authenticator: Authenticator) -> str:
    return str(_FACTORS.get(authenticator.type, authenticator.type))
