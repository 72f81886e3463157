"""Telling other shards that a request has ended for which some of theirs wait: the stages of a closed loop.

What ended lies in the database, like everything of a run that must not be lost. A thread of its own writes and asks, so the
generator's loop does not wait for it; loads without such requests have none.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from django.db import DatabaseError, connection

from workers.models import Ended

log = logging.getLogger(__name__)

POLL_S = 0.05


def forget(block: int) -> None:
    """What ended within a block is of no use once all shards have sent their parts."""
    Ended.objects.filter(block_id=block).delete()


class Handing:
    """`awaited`: numbers of other shards' requests. `release` is called on the thread, once with each that has ended."""

    def __init__(self, block: int, stage: int, awaited: Iterable[int], release: Callable[[int], None]) -> None:
        self._of = {"block_id": block, "stage": stage}
        self._awaited = set(awaited)
        self._release = release
        self._ended: deque[int] = deque()
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._hand, name=f"handing of block {block}", daemon=True)

    def __enter__(self) -> Handing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._wake.set()
        self._thread.join()

    def tell(self, number: int) -> None:
        self._ended.append(number)
        self._wake.set()

    def _hand(self) -> None:
        try:
            while not self._over:
                self._wake.wait(POLL_S if self._awaited else None)
                self._wake.clear()
                try:
                    self._write()
                    self._ask()
                except DatabaseError:  # the next look tries again
                    log.warning("Block %(block_id)s: the database did not take or tell what ended", self._of, exc_info=True)
            self._write()
        except DatabaseError:
            log.warning("Block %(block_id)s: the database did not take what ended last", self._of, exc_info=True)
        finally:
            connection.close()

    def _write(self) -> None:
        numbers = list(self._ended)
        if numbers:
            Ended.objects.bulk_create((Ended(request=number, **self._of) for number in numbers), ignore_conflicts=True)
            for _ in numbers:
                self._ended.popleft()

    def _ask(self) -> None:
        if not self._awaited or self._over:
            return
        known = set(Ended.objects.filter(**self._of).values_list("request", flat=True)) & self._awaited
        self._awaited -= known
        for number in sorted(known):
            self._release(number)
