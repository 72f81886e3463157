"""Taking back a change that is still in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_api.policies import switching

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from scheduler_api.models import PolicyChange


def undone(change: PolicyChange) -> dict[str, Any]:
    """What takes a change back: the values before it, of the fields that it changed. Empty: it set what was there already."""
    return {name: change.old[name] for name, value in change.changes.items() if name in change.old and change.old[name] != value}


def take_back(change: PolicyChange, by: User) -> PolicyChange:
    """Sets the values before `change`, at its version: SwitchRefused (409) where something was changed since."""
    return switching.switch(
        change.server,
        undone(change),
        actor=by,
        actor_name=by.get_username(),
        reason=f"takes back change {change.pk} by {change.actor_name}",
        expected_version=change.version,
        takes_back=True,
    )
