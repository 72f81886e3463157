"""One answer of the policies page: the server, the policy just read from it, and what the form asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django_htmx.middleware import HtmxDetails

from dashboard import policy_conflict, policy_guards, policy_page, roles
from dashboard.policy_effects import effects
from dashboard.policy_page import Json
from dashboard.roles import Role
from dashboard.server_page import server_context
from scheduler_api import policies, selectors
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import PolicyChange, Server, ServerKind
from scheduler_api.policies import guarding, presets, scheduling
from scheduler_api.policies.cautions import Caution, cautions
from scheduler_api.policies.guards import Condition
from scheduler_api.policies.models import PolicyGuard
from scheduler_api.policies.values import fit
from workers import selectors as runs

SHOWN_CHANGES, READ_CHANGES = 20, 200
DEFAULT_TTL_S = "1800"
LONGEST_TTL_MIN = 30 * 24 * 60


class Request(HttpRequest):
    htmx: HtmxDetails
    user: User


@dataclass(slots=True)
class Review:
    """The pending change, as the panel beside the form shows it. `error` is one sentence, `passed` a dry run that went well."""

    changes: Json
    lines: list[policy_page.Line] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    severe: list[str] = field(default_factory=list)
    error: str = ""
    passed: bool = False
    reason: str = ""
    ttl: str = DEFAULT_TTL_S
    minutes: str = ""
    request: str = ""
    title: str = ""
    guards: list[Condition] = field(default_factory=list)
    unguarded_net: bool = False  # a guarded change without a deadline
    understood: bool = False

    @property
    def ttl_s(self) -> float | None:
        return float(self.ttl) if self.ttl else None


class Desk:
    """Reads the policy once; every view of the page begins with one."""

    def __init__(self, request: Request, server: Server) -> None:
        self.request, self.server = request, server
        self.state = selectors.live_state(server.pk)
        self.fields: dict[str, Json] = ((self.state or {}).get("switching") or {}).get("fields") or {}
        self.changes = selectors.policy_changes(server, READ_CHANGES)
        self.policy: Json | None = None
        self.failure = ""
        if server.kind == ServerKind.ENGINE:
            try:
                self.policy = policies.read_policy(server)
            except (ServerUnreachable, SwitchRefused) as error:
                self.failure = error.text
        self.chosen: Json = {}

    @property
    def version(self) -> int:
        """The version that the operator saw, so that a change in between is noticed."""
        told = self.request.POST.get("version", "")
        return int(told) if told.isdecimal() else int(self.policy["version"]) if self.policy else 0

    # -- what is asked for --------------------------------------------------------------------------------------------

    def pending(self, error: str = "") -> Review:
        """The form against the policy as it is now."""
        assert self.policy is not None
        post = self.request.POST
        pending = Review(changes={}, error=error)
        _how(pending, post)
        try:
            self.chosen = policy_page.chosen_in(post, self.fields)
        except policy_page.NotANumber as wrong:
            pending.error = str(wrong)
            return pending
        pending.changes = policy_page.changed_in(self.chosen, self.policy, self.seen())
        self.chosen = dict(pending.changes)
        self._word(pending, None)
        return pending

    def seen(self) -> Json:
        """The requested policy that the form was made from."""
        try:
            seen = json.loads(self.request.POST.get("seen", "{}"))
        except ValueError:
            return {}
        return seen if isinstance(seen, dict) else {}

    def proposed(self, values: Mapping[str, object], title: str) -> Review:
        """A whole policy, from a preset or a file, as a change to review."""
        assert self.policy is not None
        fitted = fit(values, self.fields)
        pending = Review(changes={}, title=title)
        if fitted.problems:
            pending.error = " ".join(fitted.problems)
            return pending
        pending.changes = policy_page.changed_in(fitted.values, self.policy, {})
        self.chosen = dict(pending.changes)
        self._word(pending, None)
        if fitted.unknown:
            pending.notes.append(("info", f"{self.server.name} has no {', '.join(fitted.unknown)}; that part is left out."))
        if not pending.changes:
            pending.error = "All of it is what was asked for already."
        return pending

    def standing(self, act: str) -> Review:
        """Keep what was set for a time, or go back to what was before it, now."""
        assert self.policy is not None
        back: Json = self.policy.get("reverts_to") or {}
        asked: Json = self.policy["requested"]
        fields = [name for name, value in asked.items() if name in back and back[name] != value]
        source = asked if act == "keep" else back
        pending = Review(
            changes={name: source[name] for name in fields}, reason=self.request.POST.get("reason", "").strip(), ttl=""
        )
        if act == "revert":
            pending.reason = "went back before the deadline"
        if not fields:
            pending.error = "Nothing is set for a time any more: the policy has gone back already."
        return pending

    def dry_run(self, pending: Review) -> None:
        assert self.policy is not None
        try:
            would_be = policies.dry_run(self.server, pending.changes, int(self.policy["version"]))
        except (SwitchRefused, ServerUnreachable) as error:
            pending.error = error.text
        else:
            pending.passed = True
            kept = [note for note in pending.notes if note[1].endswith("left out.")]
            self._word(pending, would_be)
            pending.notes += kept

    def _word(self, pending: Review, would_be: Json | None) -> None:
        assert self.policy is not None
        pending.lines = policy_page.diff_lines(pending.changes, self.policy, self.fields)
        found = self._cautions(pending)
        pending.severe = [each.text for each in found if each.severe]
        pending.notes = [("warn", each.text) for each in found if not each.severe]
        pending.notes += policy_page.notes(pending.changes, self.policy, would_be, self.fields)
        run = runs.active_run(self.server)
        if run is not None and pending.changes:
            pending.notes.insert(0, ("warn", f"Run {run.pk} measures this server now. Applying disturbs it."))
        pending.request = policy_page.request_text(
            pending.changes, int(self.policy["version"]), int(pending.ttl) if pending.ttl else None, pending.reason
        )

    def _cautions(self, pending: Review) -> list[Caution]:
        return cautions(pending.changes, self.policy or {}, self._state(), pending.ttl_s) if pending.changes else []

    # -- what is shown ------------------------------------------------------------------------------------------------

    def render(self, pending: Review | None = None, status: int = 200) -> HttpResponse:
        shown = self.policy or (self.state or {}).get("policy")  # what was seen last, when it cannot be read now
        context = self.context() | {
            "policy": shown,
            "seen": json.dumps(shown["requested"]) if shown else "{}",
            "failure": self.failure,
            "cards": policy_page.cards(self.fields, shown, self.chosen, self.changes, effects(self.server)) if shown else [],
            "changes": self._change_rows(shown),
            "pending": pending,
            "durations": [("" if seconds is None else str(seconds), words) for seconds, words in policy_page.DURATIONS],
            "reasons": policy_page.REASONS,
            "guard_fields": policy_guards.fields(self.request.POST),
            "presets": presets.all_presets(),
            "windows": scheduling.windows_of(self.server),
            "guards": self._guards(),
            "preset": self.request.GET.get("preset", ""),
        }
        part = "policies/review.html" if self.request.htmx and pending is not None else "policies/page.html"
        return render(self.request, part, context, status=200 if self.request.htmx else status)

    def context(self) -> Json:
        """What every page of a server shows; switching needs the role, and a policy that was read."""
        context = server_context(self.request, self.server, self._state(), time.time())
        context["is_operator"] = roles.may(self.request.user, Role.OPERATOR, self.server)
        context["may_switch"] = context["may_switch"] and self.policy is not None
        return context

    def conflict(self, pending: Review, current: Json) -> HttpResponse:
        """Both sides of a change that was made on a policy that is not there any more."""
        base, since = self.seen(), self.version
        self.policy = current
        theirs = [change for change in self.changes if (change.version or 0) > since and change.outcome in ("applied", "seen")]
        context = self.context() | {
            "policy": current,
            "seen": json.dumps(current["requested"]),
            "base_version": since,
            "rows": policy_conflict.rows(base, current["requested"], pending.changes),
            "theirs": [(change, policy_page.change_words(change)) for change in theirs],
            "pending": pending,
            "post": {name: value for name, value in self.request.POST.items() if name.startswith(policy_guards.PREFIX)},
        }
        return render(self.request, "policies/conflict.html", context, status=409)

    def _change_rows(self, policy: Json | None) -> list[tuple[PolicyChange, list[str], bool]]:
        """With whether a row is the change in force, which one click takes back."""
        version = (policy or {}).get("version")
        return [
            (
                change,
                policy_page.change_words(change),
                change.outcome == "applied" and change.version == version and bool(policies.undone(change)),
            )
            for change in self.changes[:SHOWN_CHANGES]
        ]

    def _guards(self) -> list[Json]:
        """Those that watch, with what they read now, and the last one that did something."""
        rows = PolicyGuard.objects.filter(server=self.server).select_related("change")
        watching = [row for row in rows[:20] if row.state == PolicyGuard.State.WATCHING]
        told = [row for row in rows[:5] if row.state in (PolicyGuard.State.REVERTED, PolicyGuard.State.FAILED)][:1]
        recent = [row for row in told if row.ended_at and (timezone.now() - row.ended_at).total_seconds() < 86_400]
        return [
            {"row": row, "conditions": guarding.shown(row, self._state(), time.time()) if row in watching else []}
            for row in [*watching, *recent]
        ]

    def _state(self) -> Json | None:
        """The live state, with the policy that was read just now: the observer may be a moment behind."""
        return self.state | {"policy": self.policy} if self.state and self.policy else self.state


def _how(pending: Review, post: Mapping[str, str]) -> None:
    """Reason, duration, guard rails and what was confirmed."""
    pending.reason, pending.understood = post.get("reason", "").strip(), post.get("understood") == "on"
    pending.ttl, pending.minutes = _ttl(post.get("ttl", DEFAULT_TTL_S)), post.get("minutes", "").strip()
    pending.unguarded_net = post.get("guard.without_ttl") == "on"
    if pending.minutes:
        minutes = int(pending.minutes) if pending.minutes.isdecimal() and len(pending.minutes) < 6 else 0
        if not 1 <= minutes <= LONGEST_TTL_MIN:
            pending.error = "For how long: whole minutes from 1 to 43,200."
        else:
            pending.ttl = str(minutes * 60)
    try:
        pending.guards = policy_guards.chosen(post)
    except policy_guards.GuardRefused as refusal:
        pending.error = pending.error or str(refusal)
    if pending.guards and not pending.ttl and not pending.unguarded_net:
        pending.ttl = str(int(policies.switching.GUARDED_TTL_S))


def _ttl(text: str) -> str:
    """One of the offered durations in seconds; "" is until changed."""
    return text if text in {"" if seconds is None else str(seconds) for seconds, _ in policy_page.DURATIONS} else DEFAULT_TTL_S
