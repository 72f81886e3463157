"""Who has which lease, as the database knows it: the fence for what observers write there."""

from __future__ import annotations

from django.db import models


class ObserverClaim(models.Model):
    """The newest holder of a lease. Writes of one with another `token` are refused.

    `until`: while Valkey cannot be reached its holder goes on under this row alone, and nobody else becomes holder before then.
    """

    what = models.CharField(max_length=60, primary_key=True)
    token = models.BigIntegerField()
    holder = models.CharField(max_length=200)
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.what}: {self.holder}"
