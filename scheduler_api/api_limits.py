"""How many requests a caller may make a minute: counted in Valkey, so that all web processes count together.

A caller is a token, or else the person of a session. Reads and writes are counted apart. While Valkey cannot be reached nothing
is counted and everything passes: a console whose Valkey is gone is to be operated all the same.
"""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from functools import lru_cache

import redis
from django.conf import settings
from django.http import HttpRequest
from ninja.throttling import BaseThrottle
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

WINDOW_S = 60
TIMEOUT_S = 0.3
#: After a failure Valkey is left alone for so long: requests must not wait for it one by one.
REST_S = 5.0

_wait: ContextVar[int | None] = ContextVar("slotboard_api_wait", default=None)


class CallerLimit(BaseThrottle):
    """`settings.API_READS` and `settings.API_WRITES` requests in each minute of the clock; 0 is no limit."""

    rests_until = 0.0  # of all of this process

    def allow_request(self, request: HttpRequest) -> bool:
        reads = request.method in ("GET", "HEAD")
        limit = settings.API_READS if reads else settings.API_WRITES
        now = time.time()
        if not limit or time.monotonic() < self.rests_until:
            return True
        try:
            count = _counted(f"slotboard:api:{caller(request)}:{'reads' if reads else 'writes'}:{int(now // WINDOW_S)}")
        except redis.RedisError as error:
            logger.warning("Requests to the API are not counted for %.0f s: %s", REST_S, error)
            CallerLimit.rests_until = time.monotonic() + REST_S
            return True
        _wait.set(max(1, WINDOW_S - int(now % WINDOW_S)))
        return count <= limit

    def wait(self) -> float | None:
        """Seconds until the next minute, after a refusal."""
        return _wait.get()


def caller(request: HttpRequest) -> str:
    """`scheduler_api.api_auth` names a token's caller; otherwise it is who the session belongs to."""
    return str(getattr(request, "slotboard_caller", None) or f"person:{request.user.pk}")


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    """Without retries: the caller has a better use for the time."""
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0))


def _counted(key: str) -> int:
    pipe = _client(settings.REDIS_URL).pipeline(transaction=False)
    pipe.incr(key)
    pipe.expire(key, 2 * WINDOW_S)
    return int(pipe.execute()[0])
