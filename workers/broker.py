"""Whether the broker can be reached, answered at once.

Celery's client tries for seconds before it gives up on a refused connection, which is too long for somebody who waits on a page.
"""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.app import app

ANSWER_S = 1.0


def reachable() -> bool:
    """True also for a broker of another kind than Redis or Valkey: then sending alone will tell."""
    url = str(app.conf.broker_url)
    if not url.startswith(("redis://", "rediss://")):
        return True
    with redis.Redis.from_url(
        url, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
    ) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
