"""Whether an observer still runs. Looked at by the worker, since an observer cannot tell of its own end."""

from __future__ import annotations

import logging
from time import time

import redis

from scheduler_api import live
from scheduler_api.alerts import conditions, store
from scheduler_api.alerts.conditions import Finding
from scheduler_api.alerts.kinds import Kind, Spec
from scheduler_api.alerts.models import Alert, Rule
from scheduler_api.alerts.tracking import Closed, Opened
from scheduler_api.models import Server

logger = logging.getLogger(__name__)

#: Unix seconds since which the rule's finding holds, or is gone: kept in Valkey between two looks, which any worker may make.
SINCE_KEY = "slotboard:alerts:observer:{what}"
SINCE_TTL_S = 120
#: For how long at least looks must find the observer missing. A console that was stopped as a whole and starts again finds an old
#: time of report, and its observer may come up after its worker.
GRACE_S = 10.0


def silence(now: float) -> float | None:
    """Seconds since an observer reported last; None when that cannot be known: none ever did, or Valkey does not answer."""
    try:
        value = live.client().get(live.HEARTBEAT_KEY)
    except redis.RedisError as error:
        logger.warning("Whether an observer runs cannot be told: %s", error)
        return None
    try:
        return max(0.0, now - float(value)) if value is not None else None
    except ValueError:
        return None


def look() -> None:
    """Opens or closes the alert about the observer. Safe to run at any time, by any number of workers."""
    now = time()
    rule = next((each.spec() for each in Rule.objects.filter(enabled=True, kind=Kind.OBSERVER_LOST)), None)
    alerts = store.open_alerts(of_observer=True)
    watched = Server.objects.filter(enabled=True).exists()
    if rule is None or not watched:
        store.write([Closed((alert.rule_id or 0, None, alert.key), now, alert.peak_s, store.SWITCHED_OFF) for alert in alerts])
        return
    found = conditions.observer_lost(silence(now), rule.threshold_s)
    if found is not None:
        _judge(rule, alerts[0] if alerts else None, found, now)
        _forget("off" if found else "on")


def _judge(rule: Spec, alert: Alert | None, found: list[Finding], now: float) -> None:
    key = (rule.id, None, "")
    if alert is None:
        if found and found[0].over and _held("on", now) >= max(rule.for_s, GRACE_S):
            store.write([Opened(key, now - found[0].value_s, now, found[0])])
    elif found:
        peak = max(alert.peak_s, found[0].value_s)
        Alert.objects.filter(pk=alert.pk).update(text=found[0].text, peak_s=peak, last_seen_at=store.when(now))
    elif _held("off", now) >= rule.clear_s:
        store.write([Closed(key, now, alert.peak_s)])


def _held(what: str, now: float) -> float:
    """For how long looks have found the same without a break; 0 when Valkey does not answer."""
    name = SINCE_KEY.format(what=what)
    try:
        live.client().set(name, repr(now), nx=True)
        live.client().expire(name, SINCE_TTL_S)
        value = live.client().get(name)
        return now - float(value) if value is not None else 0.0
    except (redis.RedisError, ValueError):
        return 0.0


def _forget(what: str) -> None:
    try:
        live.client().delete(SINCE_KEY.format(what=what))
    except redis.RedisError as error:
        logger.warning("A time could not be forgotten: %s", error)
