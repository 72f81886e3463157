"""Every address of the console. docs/architecture.md lists them."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import path

from dashboard.views import (
    alert_rules,
    alerts,
    audit,
    auth,
    definitions,
    experiments,
    history,
    launch,
    overview,
    policies,
    results,
    servers,
)
from scheduler_api.api import api

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("overview/cards/", overview.cards, name="overview-cards"),
    path("rail/", overview.rail, name="rail"),
    path("login/", auth.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("servers/add/", servers.add, name="server-add"),
    path("servers/<int:pk>/", servers.live, name="server"),
    path("servers/<int:pk>/history/", history.show, name="server-history"),
    path("servers/<int:pk>/runs/", history.runs, name="server-runs"),
    path("servers/<int:pk>/policies/", policies.show, name="policies"),
    path("servers/<int:pk>/policy/", policies.switch, name="policy-switch"),
    path("servers/<int:pk>/policy/review/", policies.review, name="policy-review"),
    path("alerts/", alerts.alerts, name="alerts"),
    path("alerts/rows/", alerts.rows, name="alert-rows"),
    path("alerts/count/", alerts.count, name="alert-count"),
    path("alerts/strip/<int:pk>/", alerts.strip, name="alert-strip"),
    path("alerts/silences/add/", alerts.silence, name="alert-silence"),
    path("alerts/silences/<int:pk>/end/", alerts.silence_end, name="alert-silence-end"),
    path("alerts/rules/", alert_rules.rules, name="alert-rules"),
    path("alerts/rules/add/", alert_rules.rule_edit, name="alert-rule-add"),
    path("alerts/rules/test/", alert_rules.rule_test, name="alert-rule-test"),
    path("alerts/rules/<int:pk>/", alert_rules.rule_edit, name="alert-rule"),
    path("alerts/rules/<int:pk>/delete/", alert_rules.rule_delete, name="alert-rule-delete"),
    path("alerts/recipients/add/", alert_rules.recipient_edit, name="alert-recipient-add"),
    path("alerts/recipients/<int:pk>/", alert_rules.recipient_edit, name="alert-recipient"),
    path("alerts/recipients/<int:pk>/test/", alert_rules.recipient_test, name="alert-recipient-test"),
    path("alerts/recipients/<int:pk>/delete/", alert_rules.recipient_delete, name="alert-recipient-delete"),
    path("alerts/<int:pk>/", alerts.alert, name="alert"),
    path("alerts/<int:pk>/acknowledge/", alerts.acknowledge, name="alert-acknowledge"),
    path("definitions/", definitions.show, name="definitions"),
    path("audit/", audit.changes, name="audit"),
    path("experiments/", experiments.experiments, name="experiments"),
    path("experiments/new/", launch.experiment_new, name="experiment-new"),
    path("experiments/<int:pk>/", experiments.run, name="run"),
    path("experiments/<int:pk>/stop/", experiments.run_stop, name="run-stop"),
    path("experiments/<int:pk>/samples/", results.run_samples, name="run-samples"),
    path("experiments/<int:pk>/samples.csv", experiments.run_csv, name="run-csv"),
    path("api/", api.urls),
    path("health/", auth.health, name="health"),
]
