"""What pages and workers may read: the registry, the live state of its servers, and the audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from scheduler_api import live
from scheduler_api.models import PolicyChange, Server


def list_servers(within: QuerySet[Server] | None = None) -> list[Server]:
    """All, or those of `within`: what somebody may see."""
    return list(Server.objects.all() if within is None else within)


def get_server(pk: int) -> Server:
    """Raises Server.DoesNotExist."""
    return Server.objects.get(pk=pk)


def live_state(server_id: int) -> dict[str, Any] | None:
    """The state as docs/protocol.md section 2 has it; None when no observer writes it, or Valkey cannot be reached."""
    return live.read_many([server_id]).get(server_id)


def live_states(ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The states that exist, by server id."""
    return live.read_many(list(ids))


def policy_changes(server: Server | None = None, limit: int = 100, within: QuerySet[Server] | None = None) -> list[PolicyChange]:
    """Newest first; `within` as in list_servers."""
    rows = PolicyChange.objects.select_related("server", "actor")
    if within is not None:
        rows = rows.filter(server__in=within)
    if server is not None:
        rows = rows.filter(server=server)
    return list(rows[:limit])
