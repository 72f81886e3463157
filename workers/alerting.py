"""Celery's part of the alerts: whether an observer runs, and sending what is due."""

from __future__ import annotations

import logging

from scheduler_api.alerts import outbox, sending, watchdog
from workers.app import app

log = logging.getLogger(__name__)


@app.task(name="workers.alerts")  # type: ignore[untyped-decorator]
def alerts() -> int:
    """One round; how many messages it handed to tasks of their own. A slow recipient keeps no other waiting for a round."""
    watchdog.look()
    outbox.bury()
    outbox.announce()
    due = outbox.due()
    for pk in due:
        deliver.apply_async((pk,), expires=outbox.CLAIM_S)
    return len(due)


@app.task(name="workers.deliver")  # type: ignore[untyped-decorator]
def deliver(pk: int) -> bool:
    """Nothing for a message that another task has claimed: rounds may hand out one twice."""
    delivery = outbox.claim(pk)
    if delivery is None:
        return False
    sending.send(delivery)
    return True
