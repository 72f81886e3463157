"""Whether a draft model fits a target, before a server is started with it."""

from __future__ import annotations

import shlex
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from dashboard import draft_page
from dashboard.roles import Role, at_least
from dashboard.server_page import server_context
from scheduler_api import drafts, selectors
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.models import Server


@require_safe
@at_least(Role.OPERATOR)
def show(request: HttpRequest, pk: int) -> HttpResponse:
    """The form, and the answer for the pair that the address names. Paths are the engine's to allow; nothing is read here."""
    server = get_object_or_404(Server, pk=pk)
    state = selectors.live_state(pk)
    asked = {name: request.GET.get(name, "")[: drafts.LONGEST_PATH] for name in ("target", "draft", "draft_rope")}
    asked["draft_rope"] = asked["draft_rope"] if asked["draft_rope"] in drafts.MODES else "auto"
    context = server_context(request, server, state, time.time()) | {"asked": asked, "modes": draft_page.MODES}
    context |= _found(server, asked)
    return render(request, "servers/drafts.html", context, status=502 if context.get("failure") else 200)


def _found(server: Server, asked: dict[str, str]) -> dict[str, Any]:
    if why_not := drafts.why_not(server):
        return {"why_not": why_not}
    try:
        files = drafts.read_files(server)
    except ServerUnreachable as failure:
        return {"failure": failure.text}
    asked["target"] = asked["target"] or next((file.path for file in files.files if file.in_use == "model"), "")
    asked["draft"] = asked["draft"] or next((file.path for file in files.files if file.in_use == "draft"), "")
    context: dict[str, Any] = {"files": files, "groups": draft_page.groups(files.files)}
    known = {file.path for file in files.files}
    if not (asked["target"] and asked["draft"]):
        return context
    if gone := [path for path in (asked["target"], asked["draft"]) if path not in known]:
        return context | {"refused": f"{gone[0]} is not among the files that {server.name} lists."}
    try:
        check = drafts.check(server, asked["target"], asked["draft"], asked["draft_rope"])
    except ServerUnreachable as failure:
        return context | {"refused": failure.text}
    mark, tone = draft_page.tone(check)
    return context | {
        "check": check,
        "mark": mark,
        "tone": tone,
        "rows": draft_page.rows(check),
        "bars": draft_page.bars(check),
        "command": _command(asked),
    }


def _command(asked: dict[str, str]) -> str:
    mode = [] if asked["draft_rope"] == "auto" else ["--draft-rope", asked["draft_rope"]]
    return shlex.join(["python", "-m", "engine.drafts", "check", asked["target"], asked["draft"], *mode])
