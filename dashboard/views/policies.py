"""The policies of one server: what is in force, what could be, and the switch."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe
from django_htmx.middleware import HtmxDetails

from dashboard import first_view, policy_page, present
from dashboard.policy_page import Json
from dashboard.roles import Role, at_least
from dashboard.views.servers import server_context
from scheduler_api import policies, selectors
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import Server, ServerKind
from workers import selectors as runs

SHOWN_CHANGES = 20
DEFAULT_TTL_S = "1800"


class Request(HttpRequest):
    htmx: HtmxDetails
    user: User


@dataclass(slots=True)
class Review:
    """The pending change, as the panel beside the form shows it. `error` is one sentence, `passed` a dry run that went well."""

    changes: Json
    lines: list[policy_page.Line] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    error: str = ""
    passed: bool = False
    reason: str = ""
    ttl: str = DEFAULT_TTL_S
    request: str = ""


@require_safe
def show(request: Request, pk: int) -> HttpResponse:
    page = _Page(request, get_object_or_404(Server, pk=pk))
    return page.render()


@require_POST
@at_least(Role.OPERATOR)
def review(request: Request, pk: int) -> HttpResponse:
    """What the form asks for, checked by a dry run. Changes nothing."""
    page = _Page(request, get_object_or_404(Server, pk=pk))
    if page.policy is None:
        return page.render(status=502)
    pending = page.pending()
    if not pending.error and pending.changes:
        page.dry_run(pending)
    return page.render(pending)


@require_POST
@at_least(Role.OPERATOR)
def switch(request: Request, pk: int) -> HttpResponse:
    page = _Page(request, get_object_or_404(Server, pk=pk))
    if page.policy is None:
        return page.render(status=502)
    act = request.POST.get("act", "")
    pending = page.standing(act) if act in ("keep", "revert") else page.pending()
    if not pending.error and not pending.reason:
        pending.error = "Say why: the reason goes into the audit."
    elif not pending.error and not pending.changes:
        pending.error = "Nothing differs from the policy that was asked for already."
    return page.render(pending, status=422) if pending.error else _apply(page, pending)


def _apply(page: _Page, pending: Review) -> HttpResponse:
    request, server = page.request, page.server
    try:
        change = policies.switch(
            server,
            pending.changes,
            actor=request.user,
            actor_name=request.user.get_username(),
            reason=pending.reason,
            expected_version=page.version,
            ttl_s=float(pending.ttl) if pending.ttl else None,
        )
    except SwitchRefused as refusal:
        if refusal.current is not None:
            page.take(refusal.current)
        pending.error = refusal.text
        return page.render(
            page.pending(error=refusal.text) if not request.POST.get("act") else pending,
            status=refusal.status if refusal.status in (409, 422) else 502,
        )
    except ServerUnreachable as failure:
        pending.error = failure.text
        return page.render(pending, status=502)
    _tell(request, change)
    return redirect("policies", pk=server.pk)


def _tell(request: HttpRequest, change: Any) -> None:
    """What the server reports after the switch, in words."""
    in_force = ", ".join(f"{first_view.words(name)} {first_view.words(change.new.get(name))}" for name in change.changes)
    differs = [name for name, value in change.changes.items() if change.new.get(name) != value]
    text = f"Read back: {in_force}, version {change.version}, from iteration {change.effective_from_iteration} on."
    if differs:
        messages.warning(request, f"{text} What was asked for is not in force; the card below says why.")
    else:
        messages.success(request, text)


class _Page:
    """One answer: the server, the policy just read from it, and the form's values."""

    def __init__(self, request: Request, server: Server) -> None:
        self.request, self.server = request, server
        self.state = selectors.live_state(server.pk)
        self.fields: dict[str, Json] = ((self.state or {}).get("switching") or {}).get("fields") or {}
        self.changes = selectors.policy_changes(server, SHOWN_CHANGES)
        self.policy: Json | None = None
        self.failure = ""
        self.status = 0
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

    def take(self, policy: Json) -> None:
        self.policy = policy

    def pending(self, error: str = "") -> Review:
        """The form against the policy as it is now."""
        assert self.policy is not None
        post = self.request.POST
        pending = Review(changes={}, error=error, reason=post.get("reason", "").strip(), ttl=_ttl(post.get("ttl", DEFAULT_TTL_S)))
        try:
            self.chosen = policy_page.chosen_in(post, self.fields)
        except policy_page.NotANumber as wrong:
            pending.error = str(wrong)
            return pending
        pending.changes = policy_page.changed_in(self.chosen, self.policy, self._seen())
        self.chosen = dict(pending.changes)
        self._word(pending, None)
        return pending

    def _seen(self) -> Json:
        """The requested policy that the form was made from."""
        try:
            seen = json.loads(self.request.POST.get("seen", "{}"))
        except ValueError:
            return {}
        return seen if isinstance(seen, dict) else {}

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
            self._word(pending, would_be)

    def _word(self, pending: Review, would_be: Json | None) -> None:
        assert self.policy is not None
        pending.lines = policy_page.diff_lines(pending.changes, self.policy, self.fields)
        pending.notes = policy_page.notes(pending.changes, self.policy, would_be, self.fields)
        run = runs.active_run(self.server)
        if run is not None and pending.changes:
            pending.notes.insert(0, ("warn", f"Run {run.pk} measures this server now. Applying disturbs it."))
        ttl = int(pending.ttl) if pending.ttl else None
        pending.request = policy_page.request_text(pending.changes, int(self.policy["version"]), ttl, pending.reason)

    def render(self, pending: Review | None = None, status: int = 200) -> HttpResponse:
        shown = self.policy or (self.state or {}).get("policy")  # what was seen last, when it cannot be read now
        context = server_context(self.request, self.server, self._state(), time.time()) | {
            "policy": shown,
            "seen": json.dumps(shown["requested"]) if shown else "{}",
            "failure": self.failure,
            "cards": policy_page.cards(self.fields, shown, self.chosen, self.changes) if shown else [],
            "changes": [(change, policy_page.change_words(change)) for change in self.changes],
            "pending": pending,
            "durations": [("" if seconds is None else str(seconds), words) for seconds, words in policy_page.DURATIONS],
            "reasons": policy_page.REASONS,
        }
        context["may_switch"] = context["may_switch"] and self.policy is not None
        part = "policies/review.html" if self.request.htmx and pending is not None else "policies/page.html"
        return render(self.request, part, context, status=200 if self.request.htmx else status)

    def _state(self) -> present.State | None:
        """The live state, with the policy that was read just now: the observer may be a moment behind."""
        return self.state | {"policy": self.policy} if self.state and self.policy else self.state


def _ttl(text: str) -> str:
    """One of the offered durations in seconds; "" is until changed."""
    return text if text in {"" if seconds is None else str(seconds) for seconds, _ in policy_page.DURATIONS} else DEFAULT_TTL_S
