"""The same leases in the database: entered by whoever got one in Valkey, looked at by each write (docs/adr/0031).

A write to the database cannot compare a key in Valkey. So a new holder enters its token here before it begins, and what an
observer writes happens inside `fenced`, which holds the row of its lease and finds its own token in it, or does not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from scheduler_api.observer.leases import Lease
from scheduler_api.observer.models import ObserverClaim


class Lost(Exception):
    """The lease, if there was one, does not count any more: another observer has this now, or nobody."""

    def __init__(self, lease: Lease | None) -> None:
        super().__init__(lease.what if lease is not None else "no lease")
        self.lease = lease


def enter(lease: Lease, *, after: Lease | None = None) -> bool:
    """Whether the lease counts from now on. Raises DatabaseError.

    `after`: one's own lease that Valkey forgot; then nobody may have held it in between. Else a holder that cannot reach Valkey
    and said so here is waited for.
    """
    with transaction.atomic():
        rows = ObserverClaim.objects.select_for_update().filter(what=lease.what)
        found = rows.annotate(waited_for=Q(until__gt=Now())).first()
        if after is not None and (found is None or found.token != after.token):
            return False
        if after is None and found is not None and (found.waited_for or found.token >= lease.token):
            return False
        row = ObserverClaim(what=lease.what, token=lease.token, holder=lease.owner.name, since=timezone.now())
        row.save(force_insert=found is None)
        return True


def go_on(leases: Iterable[Lease], seconds: float) -> set[int]:
    """For a holder that Valkey does not answer: nobody else becomes holder for so long. The tokens that still count."""
    rows = ObserverClaim.objects.filter(token__in=[lease.token for lease in leases])
    rows.update(until=ExpressionWrapper(Now() + timedelta(seconds=seconds), output_field=DateTimeField()))
    return set(rows.values_list("token", flat=True))


@contextmanager
def fenced(lease: Lease | None) -> Iterator[None]:
    """A transaction of the lease's holder. Raises Lost, with nothing written, for any other."""
    with transaction.atomic():
        if lease is None or _rows(lease).select_for_update().values_list("token").first() is None:
            raise Lost(lease)
        yield


def stands(lease: Lease | None) -> bool:
    """For what is done outside the database: whether nobody else has become holder. Raises DatabaseError."""
    return lease is not None and _rows(lease).exists()


def _rows(lease: Lease) -> QuerySet[ObserverClaim]:
    return ObserverClaim.objects.filter(what=lease.what, token=lease.token)
