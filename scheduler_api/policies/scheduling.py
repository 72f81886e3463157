"""Windows kept, and their edges fired: claimed in the database before they are tried, so none is tried again unseen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.audit.service import FAILED, REFUSED
from scheduler_api.exceptions import RegistrationRefused, ServerUnreachable, SwitchRefused
from scheduler_api.kinds.fields import Json
from scheduler_api.models import Server
from scheduler_api.policies import asking, switching
from scheduler_api.policies.drift import AT_DEADLINE
from scheduler_api.policies.models import PolicyWindow, WindowFiring
from scheduler_api.policies.values import differing
from scheduler_api.policies.windows import Edge, Once, Weekly, Window, due, next_edge, words

logger = logging.getLogger(__name__)

#: After a server that was not there one more attempt, by then recorded as such; never a third.
AGAIN_AFTER = timedelta(seconds=30)
ATTEMPTS = 2
#: How much later than the window's end the server goes back by itself, where the console is to set another policy at the end.
NET_S = 60.0
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=28)
#: A claim that nobody finished: the process died over it.
ABANDONED = timedelta(minutes=2)

#: Why a server must not be switched at the moment; "" when it may.
type Busy = Callable[[Server], str]


def clock_of(row: PolicyWindow) -> Window:
    if row.starts_at is not None and row.ends_at is not None:
        return Once(row.starts_at, row.ends_at)
    assert row.begins is not None
    assert row.ends is not None
    return Weekly(tuple(row.days), row.begins, row.ends, row.zone)


def keep(row: PolicyWindow, by: User) -> PolicyWindow:
    """Raises RegistrationRefused; `field` names the input at fault."""
    _check(row)
    made = row.pk is None
    before = None if made else _told(PolicyWindow.objects.get(pk=row.pk))
    row.by, row.by_name, row.since = by, by.get_username(), timezone.now()
    try:
        with transaction.atomic():
            row.save()
            action = "window.made" if made else "window.changed"
            audit.record(
                action, f"{row.name}: {words(clock_of(row))}", server=row.server, actor=by, before=before, after=_told(row)
            )
    except IntegrityError:
        raise RegistrationRefused(f"{row.server.name} has a window called {row.name} already.", "name") from None
    return row


def _check(row: PolicyWindow) -> None:
    if not row.name.strip():
        raise RegistrationRefused("Give the window a name.", "name")
    if not row.inside:
        raise RegistrationRefused("Choose the policy of the window.", "inside")
    if row.starts_at is not None or row.ends_at is not None:
        if row.starts_at is None or row.ends_at is None or not SHORTEST <= row.ends_at - row.starts_at <= LONGEST:
            raise RegistrationRefused("A window lasts from a minute to 28 days.", "ends_at")
        if row.ends_at <= timezone.now():
            raise RegistrationRefused("This window is over already.", "ends_at")
        return
    if not row.days:
        raise RegistrationRefused("Choose at least one day.", "days")
    if row.begins is None or row.ends is None or row.begins == row.ends:
        raise RegistrationRefused("Give two different times.", "ends")
    if row.zone not in available_timezones():
        raise RegistrationRefused(f"There is no time zone {row.zone}.", "zone")


def _told(row: PolicyWindow) -> Json:
    return {"name": row.name, "when": words(clock_of(row)), "inside": row.inside, "outside": row.outside, "enabled": row.enabled}


def set_enabled(row: PolicyWindow, enabled: bool, by: User) -> None:
    with transaction.atomic():
        row.enabled, row.since, row.by, row.by_name = enabled, timezone.now(), by, by.get_username()
        row.save(update_fields=["enabled", "since", "by", "by_name"])
        audit.record("window.on" if enabled else "window.off", row.name, server=row.server, actor=by)


def remove(row: PolicyWindow, by: User) -> None:
    with transaction.atomic():
        audit.record("window.removed", row.name, server=row.server, actor=by, before=_told(row))
        row.delete()


# -- firing ---------------------------------------------------------------------------------------------------------------


def fire_due(busy: Busy, now: datetime | None = None) -> list[WindowFiring]:
    """Sees to every edge that has passed and was not seen to. Safe to run at any time, by any number of workers."""
    now = now or timezone.now()
    rows = PolicyWindow.objects.filter(enabled=True, server__enabled=True).select_related("server", "by")
    fired = [_see_to(row, edge, busy, now) for row in rows if (edge := due(clock_of(row), now, row.since)) is not None]
    return [each for each in fired if each is not None]


def _see_to(row: PolicyWindow, edge: Edge, busy: Busy, now: datetime) -> WindowFiring | None:
    if edge.what == "end" and row.outside is None:
        return None  # the server goes back by itself
    attempts = list(row.firings.filter(edge=edge.what, due=edge.due).order_by("-attempt"))
    last = attempts[0] if attempts else None
    if last is not None and not _again(last, now):
        return None
    try:
        with transaction.atomic():
            firing = WindowFiring.objects.create(
                window=row, edge=edge.what, due=edge.due, attempt=last.attempt + 1 if last is not None else 1
            )
    except IntegrityError:
        return None  # another worker has it
    _fire(row, edge, firing, busy, now)
    return firing


def _again(last: WindowFiring, now: datetime) -> bool:
    if last.outcome == WindowFiring.Outcome.TRYING and now - last.at > ABANDONED:
        _end(
            last,
            WindowFiring.Outcome.FAILED,
            "The worker ended over it; what became of it stands in the changes, if anything did.",
        )
        return False
    return last.outcome == WindowFiring.Outcome.FAILED and last.attempt < ATTEMPTS and now - last.at >= AGAIN_AFTER


def _fire(row: PolicyWindow, edge: Edge, firing: WindowFiring, busy: Busy, now: datetime) -> None:
    try:
        if why_not := busy(row.server):
            raise SwitchRefused(why_not, 409)
        policy = asking.read_policy(row.server)
        if edge.what == "end" and (why_not := _not_ours(row, edge, policy)):
            raise SwitchRefused(why_not, 409, policy)
        _switch(row, edge, firing, policy, now)
    except SwitchRefused as refusal:
        _not_applied(row, firing, WindowFiring.Outcome.REFUSED, refusal.text)
    except ServerUnreachable as failure:
        again = " It is tried once more." if firing.attempt < ATTEMPTS else " It is not tried again."
        _not_applied(row, firing, WindowFiring.Outcome.FAILED, failure.text + again)
    except Exception:
        _end(firing, WindowFiring.Outcome.REFUSED, "An unexpected error; the worker's log has it.")
        logger.exception("Window %s of %s could not be fired.", row.name, row.server.name)


def _switch(row: PolicyWindow, edge: Edge, firing: WindowFiring, policy: Json, now: datetime) -> None:
    wanted = row.inside if edge.what == "begin" else row.outside or {}
    changes = differing(wanted, policy["requested"])
    ttl_s = None
    if edge.what == "begin":
        ttl_s = max(1.0, (edge.span.end - now).total_seconds()) + (NET_S if row.outside is not None else 0.0)
    if not changes and edge.what == "end" and policy.get("reverts_at") is None:
        _end(firing, WindowFiring.Outcome.ALREADY, "The policy was in force already.", policy["version"])
        return
    if not changes and edge.what == "begin":
        _end(
            firing,
            WindowFiring.Outcome.ALREADY,
            "The policy was in force already, and is left to whoever set it.",
            policy["version"],
        )
        return
    late = (now - edge.due).total_seconds()
    about = "begins" if edge.what == "begin" else "ends"
    change = switching.switch(
        row.server,
        changes,
        actor=row.by,
        actor_name=f"window {row.name}"[:150],
        reason=f"window {row.name} {about}{f', {late:.0f} s late' if late > 60 else ''}",
        expected_version=policy["version"],
        ttl_s=ttl_s,
        action="policy.scheduled",
    )
    _end(firing, WindowFiring.Outcome.APPLIED, switching.words(change)[:500], change.version)


def _not_ours(row: PolicyWindow, edge: Edge, policy: Json) -> str:
    """Why the end does not touch the policy: what the window set is not what stands, nor what the server went back to from it."""
    begun = row.firings.filter(edge="begin", due=edge.span.begin).exclude(version=None).first()
    if begun is None:
        return "The window's own policy was not in force, so its end changes nothing."
    assert begun.version is not None
    if policy["version"] == begun.version:
        return ""
    if policy["version"] == begun.version + 1 and policy.get("reason") == AT_DEADLINE:
        return ""
    return (
        f"The policy was changed since the window began (version {begun.version}, now {policy['version']}): it is left as it is."
    )


def _not_applied(row: PolicyWindow, firing: WindowFiring, outcome: str, text: str) -> None:
    """Said in the list of windows and in the trail; a switch that was tried also has its own row there."""
    _end(firing, outcome, text)
    logger.warning("Window %s of %s, %s: %s", row.name, row.server.name, firing.edge, text)
    audit.record(
        "window.missed",
        f"{row.name}, {firing.edge} due {firing.due:%Y-%m-%d %H:%M} UTC, attempt {firing.attempt}",
        server=row.server,
        actor_name=f"window {row.name}",
        why=text,
        outcome=REFUSED if outcome == WindowFiring.Outcome.REFUSED else FAILED,
    )


def _end(firing: WindowFiring, outcome: str, text: str, version: int | None = None) -> None:
    firing.outcome, firing.text, firing.version = WindowFiring.Outcome(outcome), text[:500], version
    firing.save(update_fields=["outcome", "text", "version"])


def windows_of(server: Server) -> list[dict[str, Any]]:
    """Each with its words, its next edge and its last attempts, for the page."""
    now = timezone.now()
    rows = PolicyWindow.objects.filter(server=server).prefetch_related("firings")
    return [
        {
            "row": row,
            "when": words(clock_of(row)),
            "next": next_edge([clock_of(row)], now) if row.enabled else None,
            "last": list(row.firings.all()[:3]),
        }
        for row in rows
    ]
