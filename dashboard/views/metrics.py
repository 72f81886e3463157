"""What Prometheus reads of the console itself: servers as observed, runs, alerts, messages, the audit trail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET
from ninja.errors import HttpError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_api import access, selectors
from scheduler_api.alerts import selectors as alerts
from scheduler_api.api_auth import Token
from scheduler_api.audit import selectors as audit
from workers import selectors as runs

Values = Sequence[tuple[tuple[str, ...], float]]  # of labels, in their order


@login_not_required
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """For a session, or a token of any scope in `Authorization: Bearer`; of the servers that it may see."""
    if not request.user.is_authenticated:
        try:
            known = Token()(request)
        except HttpError as error:
            return _refused(error.status_code, str(error))
        if not known:
            return _refused(401, "This needs an API token: Authorization: Bearer …")
    if not access.of(request).best():
        return _refused(403, "This needs a role on a server.")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Console(access.of(request)))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _refused(status: int, why: str) -> HttpResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return HttpResponse(f"{why}\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


class Console(Collector):
    """Read anew for each scrape, so web processes agree and none has to count."""

    def __init__(self, who: access.Access) -> None:
        self._who = who

    def collect(self) -> Iterator[Metric]:
        servers = list(self._who.servers())
        states, now = selectors.live_states([server.pk for server in servers]), time.time()
        yield _gauge("slotboard_build_info", "The console's version.", ("version",), [((settings.VERSION,), 1)])
        health = [
            ((server.name, server.kind, state["health"]["state"]), 1.0) for server in servers if (state := states.get(server.pk))
        ]
        yield _gauge("slotboard_server_health", "1 for the state that an observer last saw.", ("server", "kind", "state"), health)
        ages = [((server.name,), now - state["t"]) for server in servers if (state := states.get(server.pk))]
        yield _gauge("slotboard_server_state_age_seconds", "Since an observer last said something.", ("server",), ages)
        within = self._who.servers()
        by_state = [((state,), float(n)) for state, n in sorted(runs.count_by_state(within).items())]
        yield _gauge("slotboard_runs", "Runs of experiments by state.", ("state",), by_state)
        by_severity = [((name,), float(n)) for name, n in sorted(alerts.count_by_severity(within).items())]
        yield _gauge("slotboard_alerts_open", "Open alerts.", ("severity",), by_severity)
        waiting = float(alerts.waiting_messages())
        yield _gauge("slotboard_alert_messages_waiting", "Messages that no recipient has taken yet.", (), [((), waiting)])
        yield _gauge("slotboard_audit_rows", "Rows of the audit trail.", (), [((), float(audit.length()))])


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for found, value in values:
        family.add_metric(found, value)
    return family
