"""What a run reads from the server that it measures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from scheduler_api import wire
from scheduler_api.models import Server
from scheduler_api.targets import Target
from workers.errors import RunFailed

type Json = dict[str, Any]

ITERATIONS_A_PAGE = 2000
MAX_PAGES = 9  # the server's ring holds 16,384


def address(server: Server) -> Target:
    return Target(server.base_url.rstrip("/"), server.api_key)


def state(server: Server, read_s: float = 10.0) -> Json:
    """GET /scheduler. Raises ServerUnreachable, or RunFailed when the server has no such thing."""
    return _object(server, "GET", "/scheduler", read_s=read_s)


def clock_offset_s(server: Server) -> float:
    """The server's clock minus this one; 0 when the difference drowns in the time of the request itself."""
    before = time.time()
    theirs = state(server).get("t")
    after = time.time()
    if not isinstance(theirs, int | float):
        return 0.0
    offset = theirs - (before + after) / 2
    return 0.0 if abs(offset) <= max(0.005, after - before) else offset


def iterations_after(server: Server, number: int) -> tuple[list[Json], bool]:
    """All iterations later than `number`, oldest first, and whether some are missing. Raises ServerUnreachable, RunFailed."""
    found: list[Json] = []
    missing = False
    for _ in range(MAX_PAGES):
        page = _object(server, "GET", f"/scheduler/iterations?after={number}&limit={ITERATIONS_A_PAGE}")
        rows = page.get("iterations") or []
        missing = missing or bool(page.get("gap"))
        found += rows
        if len(rows) < ITERATIONS_A_PAGE:
            break
        number = rows[-1]["i"]
    return found, missing


def tokenize(server: Server, text: str) -> list[int]:
    """Raises ServerUnreachable, RunFailed."""
    tokens = _object(server, "POST", "/tokenize", json={"content": text, "add_special": False}).get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise RunFailed("The server's /tokenize did not answer with a list of token ids.")
    return tokens


def busy_slots(server: Server, slots: Iterable[int]) -> list[int]:
    """Which of `slots` are not idle now. Raises ServerUnreachable, RunFailed."""
    wanted = set(slots)
    return [slot["id"] for slot in state(server, read_s=2.0).get("slots", []) if slot["id"] in wanted and slot["state"] != "idle"]


def _object(server: Server, method: str, path: str, *, json: Any = None, read_s: float = 30.0) -> Json:
    answer = wire.call(address(server), method, path, json=json, read_s=read_s)
    if answer.status != 200:
        said = answer.error_message()
        raise RunFailed(f"{server.name} answered {answer.status} to {path.partition('?')[0]}{': ' + said if said else '.'}")
    try:
        value = answer.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunFailed(f"{server.name} answered {path.partition('?')[0]} with something else than a JSON object.")
    return value
