"""The JSON API of alerts and silences. A viewer reads; an operator of the server acknowledges and silences."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.params.functions import Query
from ninja.responses import Status

from scheduler_api import access
from scheduler_api.access import Role
from scheduler_api.alerts import selectors, services
from scheduler_api.alerts.models import Alert, Delivery, Rule, Silence
from scheduler_api.api_auth import require, sees
from scheduler_api.api_paging import LARGEST, Pages, Shown
from scheduler_api.api_problems import invalid
from scheduler_api.api_schema import example
from scheduler_api.models import Server

router = Router(tags=["alerts"])

LONGEST_MIN = int(services.LONGEST_SILENCE / timedelta(minutes=1))
ALERT: dict[str, Any] = {
    "id": 31,
    "kind": "starving",
    "severity": "warning",
    "server": 1,
    "server_name": "local",
    "rule": 4,
    "text": "chat-warm on slot 1 got no token for 34 s",
    "slot": 1,
    "client": "chat-warm",
    "task": 9196,
    "began_at": "2026-05-01T09:00:02Z",
    "opened_at": "2026-05-01T09:00:32Z",
    "closed_at": None,
    "closed_why": "",
    "peak_s": 34.0,
    "limit_s": 30.0,
    "acknowledged_by": "",
    "acknowledged_at": None,
    "silenced_until": None,
}
DELIVERY = {"recipient": "ops", "channel": "webhook", "transition": "opened", "outcome": "sent", "attempts": 1, "error": ""}
SILENCE: dict[str, Any] = {
    "id": 5,
    "kind": "starving",
    "rule": 4,
    "server": 1,
    "server_name": "local",
    "since": "2026-05-01T09:01:00Z",
    "until": "2026-05-01T10:01:00Z",
    "by": "mira",
    "reason": "a benchmark runs",
}


class AlertOut(Schema):
    """`server` null: it is about no server, or about all. `peak_s` and `limit_s` in seconds."""

    id: int
    kind: str
    severity: str
    server: int | None
    server_name: str
    rule: int | None
    text: str
    slot: int | None
    client: str
    task: int | None
    began_at: datetime
    opened_at: datetime
    closed_at: datetime | None
    closed_why: str
    peak_s: float
    limit_s: float
    acknowledged_by: str
    acknowledged_at: datetime | None
    silenced_until: datetime | None

    model_config = example(**ALERT)


class DeliveryOut(Schema):
    """Who was told: the recipient's name, never the address."""

    recipient: str
    channel: str
    transition: str
    outcome: str
    attempts: int
    error: str

    model_config = example(**DELIVERY)


class AlertDetail(AlertOut):
    deliveries: list[DeliveryOut]

    model_config = example(**ALERT, deliveries=[DELIVERY])


class SilenceOut(Schema):
    """`kind` and `rule` null: every rule; `server` null: every server."""

    id: int
    kind: str | None
    rule: int | None
    server: int | None
    server_name: str
    since: datetime
    until: datetime
    by: str
    reason: str

    model_config = example(**SILENCE)


class SilenceIn(Schema):
    """Without `rule` it is for every rule, without `server` for every server, which needs the role on all of them."""

    rule: int | None = Field(None, le=LARGEST)
    server: int | None = Field(None, le=LARGEST)
    minutes: float = Field(..., gt=0, le=LONGEST_MIN)
    reason: str = Field(..., min_length=1, max_length=300)

    model_config = example(rule=4, server=1, minutes=60, reason="a benchmark runs")


def alert_out(shown: selectors.Shown) -> dict[str, Any]:
    alert = shown.alert
    same = ("id", "kind", "severity", "text", "slot", "client", "task", "began_at", "opened_at", "closed_at", "closed_why")
    told = {name: getattr(alert, name) for name in (*same, "peak_s", "limit_s", "acknowledged_at")}
    return told | {
        "server": alert.server_id,
        "server_name": alert.server.name if alert.server is not None else "",
        "rule": alert.rule_id,
        "acknowledged_by": alert.acknowledged_name,
        "silenced_until": shown.silence.until if shown.silence is not None else None,
    }


def silence_out(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.pk,
        "kind": silence.rule.kind if silence.rule is not None else None,
        "rule": silence.rule_id,
        "server": silence.server_id,
        "server_name": silence.server.name if silence.server is not None else "",
        "since": silence.since,
        "until": silence.until,
        "by": silence.by_name,
        "reason": silence.reason,
    }


@router.get("", response=list[AlertOut], summary="Alerts, the worst first")
@paginate(Pages)
def list_alerts(
    request: HttpRequest,
    state: str = Query("open", pattern="^(open|closed|all)$"),
    server: int | None = Query(None, le=LARGEST),
    kind: str = "",
    severity: str = "",
    acknowledged: bool | None = Query(None, description="only those that somebody has acknowledged, or nobody"),
) -> Shown[Alert]:
    """Open ones worst first, then the newest; closed ones newest first."""
    within = access.of(request).servers()
    rows = selectors.find(state=state, server=server, kind=kind, severity=severity, within=within)
    rows = rows if acknowledged is None else rows.filter(acknowledged_at__isnull=not acknowledged)
    return Shown(rows, lambda page: map(alert_out, selectors.with_silence(page)))


@router.get("/silences", response=list[SilenceOut], summary="Silences that have not ended")
@paginate(Pages)
def list_silences(request: HttpRequest) -> list[dict[str, Any]]:
    return [silence_out(each) for each in selectors.silences(access.of(request).servers())]


@router.post("/silences", response={201: SilenceOut}, summary="Silence alerts for a time")
def add_silence(request: HttpRequest, body: SilenceIn) -> Status[dict[str, Any]]:
    """Alerts open and close all the same; nobody is told. An alert that is still open at the end is told then."""
    server = _server(request, body.server)
    by = require(request, Role.OPERATOR, server)
    rule = Rule.objects.filter(pk=body.rule).first() if body.rule is not None else None
    if body.rule is not None and (rule is None or not sees(request, rule.server)):
        raise invalid(f"There is no rule {body.rule}.", "rule")
    made = services.silence(rule, server, timedelta(minutes=body.minutes), by, body.reason)
    return Status(201, silence_out(made))


@router.delete("/silences/{int:silence_id}", response={204: None}, summary="End a silence now")
def end_silence(request: HttpRequest, silence_id: int) -> Status[None]:
    found = Silence.objects.select_related("rule", "server").filter(pk=silence_id).first()
    if found is None or not sees(request, found.server):
        raise HttpError(404, "No such silence.")
    require(request, Role.OPERATOR, found.server)
    services.end_silence(found)
    return Status(204, None)


@router.get("/{int:alert_id}", response=AlertDetail, summary="An alert, and who was told of it")
def alert_detail(request: HttpRequest, alert_id: int) -> dict[str, Any]:
    return _detail(_alert(request, alert_id))


@router.post("/{int:alert_id}/acknowledge", response=AlertDetail, summary="Acknowledge an alert")
def acknowledge_alert(request: HttpRequest, alert_id: int) -> dict[str, Any]:
    """The first one counts: for an alert that somebody has acknowledged already, `acknowledged_by` says who."""
    found = _alert(request, alert_id)
    services.acknowledge(found, require(request, Role.OPERATOR, found.server))
    return _detail(_alert(request, alert_id))


def _alert(request: HttpRequest, alert_id: int) -> Alert:
    found = Alert.objects.select_related("server", "rule").filter(pk=alert_id).first()
    if found is None or not sees(request, found.server):
        raise HttpError(404, "No such alert.")
    return found


def _detail(alert: Alert) -> dict[str, Any]:
    told = [_delivery(each) for each in selectors.deliveries(alert)]
    return alert_out(selectors.with_silence([alert])[0]) | {"deliveries": told}


def _delivery(delivery: Delivery) -> dict[str, Any]:
    same = ("channel", "transition", "outcome", "attempts", "error")
    return {"recipient": delivery.recipient_name} | {name: getattr(delivery, name) for name in same}


def _server(request: HttpRequest, pk: int | None) -> Server | None:
    """Raises 422 for one that is not there, or not to be seen."""
    if pk is None:
        return None
    found = access.of(request).servers().filter(pk=pk).first()
    if found is None:
        raise invalid(f"There is no server {pk}.", "server")
    return found
