"""What pages read of alerts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When
from django.utils import timezone

from scheduler_api.alerts import outbox
from scheduler_api.alerts.kinds import SEVERITY_RANK, Kind
from scheduler_api.alerts.models import Alert, Delivery, Outcome, Recipient, Rule, Silence
from scheduler_api.models import Server


@dataclass(frozen=True, slots=True)
class Shown:
    alert: Alert
    silence: Silence | None


def find(
    *,
    state: str = "open",
    server: int | None = None,
    kind: str = "",
    severity: str = "",
    within: QuerySet[Server] | None = None,
) -> QuerySet[Alert]:
    """Open ones worst first, then the newest; closed ones newest first. `state`: "open", "closed" or "all". `within`: the
    servers whose alerts are meant; alerts of no server belong to everybody."""
    rows = Alert.objects.select_related("server", "rule")
    if within is not None:
        rows = rows.filter(Q(server=None) | Q(server__in=within))
    if state == "open":
        rows = rows.filter(closed_at=None)
    elif state == "closed":
        rows = rows.exclude(closed_at=None)
    if server is not None:
        rows = rows.filter(server_id=server)
    if kind:
        rows = rows.filter(kind=kind)
    if severity:
        rows = rows.filter(severity=severity)
    ranks = [When(closed_at=None, severity=name, then=Value(rank)) for name, rank in SEVERITY_RANK.items()]
    rank = Case(*ranks, default=Value(len(ranks)), output_field=IntegerField())
    return rows.annotate(rank=rank).order_by("rank", "-opened_at", "-pk")


def with_silence(alerts: list[Alert]) -> list[Shown]:
    kept = outbox.silences(timezone.now())
    return [Shown(alert, next((each for each in kept if each.covers(alert)), None)) for alert in alerts]


def open_of(server_id: int) -> list[Shown]:
    """The open alerts of a server's page: its own, and that no observer runs."""
    own = find(server=server_id)
    return with_silence([*find().filter(server=None), *own])


def counts(within: QuerySet[Server] | None = None) -> tuple[int, int]:
    """(open alerts nobody silenced, critical ones among them). Asked by every page every few seconds: one query."""
    rows = Alert.objects.filter(closed_at=None)
    if within is not None:
        rows = rows.filter(Q(server=None) | Q(server__in=within))
    for silence in outbox.silences(timezone.now()):
        of_rule = Q(rule_id=silence.rule_id) if silence.rule_id is not None else Q()
        on_server = Q(server_id=silence.server_id) if silence.server_id is not None else Q()
        rows = rows.exclude(of_rule & on_server) if of_rule or on_server else rows.none()
    found = rows.aggregate(total=Count("pk"), critical=Count("pk", filter=Q(severity="critical")))
    return found["total"], found["critical"]


@dataclass(frozen=True, slots=True)
class Open:
    """A server's open alerts that nobody silenced: how many, and the worst of them (its severity, its rule's name)."""

    count: int
    severity: str
    kind: str


def count_by_severity(within: QuerySet[Server]) -> dict[str, int]:
    """Open ones of these servers and of none, for each severity that any has."""
    rows = Alert.objects.filter(Q(server=None) | Q(server__in=within), closed_at=None)
    return dict(rows.order_by().values_list("severity").annotate(n=Count("pk")))


def waiting_messages() -> int:
    """Messages that are still to be sent, or are being sent."""
    return Delivery.objects.filter(outcome__in=(Outcome.PENDING, Outcome.SENDING)).count()


def open_by_server(ids: Iterable[int]) -> dict[int, Open]:
    """Without servers that have none. Two queries, whatever their number."""
    kept, found = outbox.silences(timezone.now()), dict[int, Open]()
    for alert in find().filter(server_id__in=list(ids)):  # worst first
        if alert.server_id is None or any(silence.covers(alert) for silence in kept):
            continue
        before = found.get(alert.server_id)
        found[alert.server_id] = (
            replace(before, count=before.count + 1) if before else Open(1, alert.severity, alert.get_kind_display())
        )
    return found


def rules(within: QuerySet[Server] | None = None) -> list[Rule]:
    rows = Rule.objects.select_related("server").prefetch_related("recipients")
    if within is not None:
        rows = rows.filter(Q(server=None) | Q(server__in=within))
    return list(rows)


def recipients() -> list[Recipient]:
    return list(Recipient.objects.all())


def silences(within: QuerySet[Server] | None = None) -> list[Silence]:
    rows = Silence.objects.filter(until__gt=timezone.now()).select_related("rule", "server")
    if within is not None:
        rows = rows.filter(Q(server=None) | Q(server__in=within))
    return list(rows)


def deliveries(alert: Alert) -> list[Delivery]:
    return list(alert.deliveries.all())


def servers_of_all(kind: Kind) -> list[Server]:
    """Those that a rule of this kind for all servers is for."""
    own = Rule.objects.filter(kind=kind, enabled=True, server__isnull=False).values("server_id")
    return list(Server.objects.filter(enabled=True).exclude(pk__in=own))
