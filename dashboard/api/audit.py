"""The JSON API of the audit trail: read and searched as its page is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.pagination import paginate
from ninja.params.functions import Query

from dashboard import audit_page
from scheduler_api import access
from scheduler_api.access import Role
from scheduler_api.api_paging import LARGEST, Pages, Shown
from scheduler_api.api_problems import invalid
from scheduler_api.api_schema import example
from scheduler_api.audit import selectors
from scheduler_api.audit.models import AuditEntry

router = Router(tags=["audit"])


class AuditOut(Schema):
    """One row. `through`: session, a token, a share link, worker, observer or command. `address`: for admins of all servers.
    `hash` covers the row and `previous`, the hash of the row before it."""

    seq: int
    at: datetime
    actor_name: str
    through: str
    address: str | None = None
    action: str
    subject: str
    server_id: int | None
    server_name: str
    ref: str = Field(..., description='a row that has more, such as "policychange 12" or "run 7"')
    before: Any
    after: Any
    why: str
    outcome: str = Field(..., description="done, refused, failed or seen")
    previous: str
    hash: str

    model_config = example(
        seq=412,
        at="2026-05-01T09:00:00Z",
        actor_name="mira",
        through="token nightly",
        address=None,
        action="policy.switched",
        subject="prefill order: physical to rotating",
        server_id=1,
        server_name="local",
        ref="policychange 12",
        before={"prefill_order": "physical"},
        after={"asked": {"prefill_order": "rotating"}, "version": 42},
        why="chat waits behind long-doc",
        outcome="done",
        previous="9f2c…",
        hash="41d0…",
    )


@router.get("", response=list[AuditOut], summary="The audit trail, the newest row first")
@paginate(Pages)
def list_audit(
    request: HttpRequest,
    who: str = Query("", description="a part of the name"),
    what: str = Query("", description='an action such as policy.switched, or the noun before its dot, "policy"'),
    server: str = Query("", description="the server's id"),
    q: str = Query("", description="words that stand anywhere in the row"),
    outcome: str = "",
    since: str = Query("", alias="from", description="a date, or a date and time: from then on"),
    until: str = Query("", alias="to", description="before then; a date means its end"),
    after: int | None = Query(None, le=LARGEST, description="rows behind this `seq` alone: for a script that reads on"),
    before: int | None = Query(
        None, le=LARGEST, description="rows before this `seq` alone: pages that do not move while rows come in"
    ),
) -> Shown[AuditEntry]:
    """An admin of all servers sees all of it; others what happened to servers that they may see."""
    form = {"who": who, "what": what, "server": server, "q": q, "outcome": outcome, "from": since, "to": until}
    asked = audit_page.asked(form)
    if asked.wrong:
        raise invalid(asked.wrong, "from" if asked.search.since is None and since else "to")
    if server and asked.search.server is None:
        raise invalid("server is a whole number.", "server")
    held = access.of(request)
    rows = audit_page.visible(selectors.find(asked.search), held)
    rows = rows if after is None else rows.filter(seq__gt=after)
    rows = rows if before is None else rows.filter(seq__lt=before)
    hidden = () if held.may(Role.ADMIN, None) else ("address",)
    return Shown(rows, lambda page: [_out(row, hidden) for row in page])


def _out(row: AuditEntry, hidden: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in selectors.as_json(row).items() if name not in hidden}
