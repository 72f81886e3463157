"""Accounts, as an admin keeps them: made without a password, with a link to set one; roles; taken out of use, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from dashboard.people import sessions
from dashboard.people.models import Membership, ServerGroup
from scheduler_api import audit
from scheduler_api.access import Role


class NotDone(Exception):
    """Why a change was refused, as a sentence."""


def add(username: str, email: str, roles: Mapping[int, str]) -> User:
    """Somebody who cannot log in before they set a password with the link of `password_link`."""
    with transaction.atomic():
        user = User.objects.create_user(username, email=email)
        audit.record("person.added", username, after={"email": email})
        give_roles(user, roles)
    return user


def give_roles(user: User, roles: Mapping[int, str]) -> None:
    """Roles by group; "" takes the role away. Raises NotDone when nobody could admit anybody any more."""
    with transaction.atomic():
        before = roles_of(user)
        for group_id, role in roles.items():
            if role:
                Membership.objects.update_or_create(user=user, group_id=group_id, defaults={"role": role})
            else:
                Membership.objects.filter(user=user, group_id=group_id).delete()
        _somebody_is_admin()
        if (after := roles_of(user)) != before:
            audit.record("person.roles", user.get_username(), before=before, after=after)


def roles_of(user: User) -> dict[str, str]:
    """Role by the group's name."""
    return dict(Membership.objects.filter(user=user).values_list("group__name", "role"))


def set_active(user: User, active: bool) -> None:
    """Deactivating ends sessions, tokens, and live pages within seconds. Raises NotDone for the last admin."""
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(is_active=active)
        _somebody_is_admin()
        audit.record("person.activated" if active else "person.deactivated", user.get_username())
    if not active:
        sessions.end_all(user)


def _somebody_is_admin() -> None:
    everywhere = Q(memberships__role=Role.ADMIN, memberships__group__everything=True)
    if not User.objects.filter(Q(is_superuser=True) | everywhere, is_active=True).exists():
        raise NotDone("This is the last admin of all servers: give the role to somebody else first.")


def password_link(user: User) -> str:
    """A path that lets somebody set the password once, within PASSWORD_RESET_TIMEOUT; a new password or login ends it."""
    audit.record("person.link", user.get_username())
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("welcome", args=[uid, default_token_generator.make_token(user)])


def forget_second_factor(user: User) -> bool:
    """For somebody who lost the phone and the recovery codes. Ends the sessions too; says whether there was one."""
    count, _ = Authenticator.objects.filter(user=user).delete()
    if count:
        audit.record("person.second_factor_reset", user.get_username())
        sessions.end_all(user)
    return bool(count)


def has_second_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


def with_second_factor(people: Iterable[User]) -> set[int]:
    """Ids of those among them who have one."""
    rows = Authenticator.objects.filter(user__in=[person.pk for person in people], type=Authenticator.Type.TOTP)
    return set(rows.values_list("user_id", flat=True))


def keep_group(group: ServerGroup | None, name: str, servers: list[int]) -> ServerGroup:
    with transaction.atomic():
        kept = group or ServerGroup()
        kept.name = name
        kept.save()
        if not kept.everything:
            kept.servers.set(servers)
        names = sorted(kept.servers.values_list("name", flat=True))
        audit.record("group.changed" if group else "group.added", name, after={"servers": names})
    return kept


def delete_group(group: ServerGroup) -> None:
    with transaction.atomic():
        audit.record("group.deleted", group.name)
        group.delete()
