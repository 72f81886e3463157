"""How many of the servers each observer watches. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def share(servers: int, observers: Sequence[object], me: object) -> int | None:
    """Of `servers`, as many for each of `observers` (the same order for all of them), the first ones one more where they do not
    come out even. None for one that is not among them: it neither takes nor gives up any."""
    if me not in observers:
        return None
    each, more = divmod(servers, len(observers))
    return each + (list(observers).index(me) < more)
