"""What a run reads from the server that it measures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scheduler_api import wire
from scheduler_api.kinds.openai_state import listed, longest
from scheduler_api.models import Server, ServerKind
from scheduler_api.targets import Target
from workers.errors import RunFailed

type Json = dict[str, Any]

NOT_LISTED = "The server does not list the model {model}, which was named with its registration."
ITERATIONS_A_PAGE = 2000
MAX_PAGES = 9  # the server's ring holds 16,384


@dataclass(frozen=True, slots=True)
class Model:
    """`n_ctx`: tokens of a request, None where it is not told. `told`: a doubt about it in words, or nothing."""

    name: str
    n_ctx: int | None = None
    told: str = ""


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


def tells_slots(server: Server) -> bool:
    return server.kind in (ServerKind.ENGINE, ServerKind.LLAMA_SERVER)


def busy_slots(server: Server, slots: Iterable[int] | None, read_s: float = 10.0) -> list[int]:
    """Which of `slots`, of all with None, are not idle now; none of a server that tells of none.

    Raises ServerUnreachable, RunFailed.
    """
    if not tells_slots(server):
        return []
    wanted = None if slots is None else set(slots)
    if server.kind == ServerKind.ENGINE:
        busy = [slot["id"] for slot in state(server, read_s=min(read_s, 2.0)).get("slots", []) if slot["state"] != "idle"]
    else:
        busy = [slot["id"] for slot in _list(server, "/slots", read_s) if slot.get("is_processing")]
    return [slot for slot in busy if wanted is None or slot in wanted]


def adapters(server: Server) -> int:
    """How many LoRA adapters it has loaded. Raises ServerUnreachable, RunFailed."""
    return len(_list(server, "/lora-adapters"))


def props(server: Server) -> Json:
    """A llama-server's GET /props. Raises ServerUnreachable, RunFailed."""
    return _object(server, "GET", "/props")


def model(server: Server) -> Model:
    """What requests to an OpenAI-compatible server name: the model given with its registration, else the first that it lists.

    Raises ServerUnreachable, RunFailed when there is none.
    """
    answer = wire.call(address(server), "GET", "/v1/models", read_s=10.0)
    if answer.status in (401, 403):
        raise RunFailed(
            f"{server.name} answered {answer.status} to /v1/models: {answer.error_message() or 'it wants another key'}"
        )
    models = listed(answer)
    if server.model:
        mine = next((each for each in models or () if each.get("id") == server.model), None)
        told = NOT_LISTED.format(model=server.model) if models is not None and mine is None else ""
        return Model(server.model, longest(mine or {}), told)
    if not models or not models[0].get("id"):
        raise RunFailed(f"{server.name} lists no model under /v1/models; name one with its registration.")
    return Model(str(models[0]["id"]), longest(models[0]))


def _list(server: Server, path: str, read_s: float = 10.0) -> list[Json]:
    value = _asked(server, "GET", path, None, read_s)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(server: Server, method: str, path: str, *, json: Any = None, read_s: float = 30.0) -> Json:
    value = _asked(server, method, path, json, read_s)
    if not isinstance(value, dict):
        raise RunFailed(f"{server.name} answered {path.partition('?')[0]} with something else than a JSON object.")
    return value


def _asked(server: Server, method: str, path: str, json: Any, read_s: float) -> Any:
    answer = wire.call(address(server), method, path, json=json, read_s=read_s)
    if answer.status != 200:
        said = answer.error_message()
        raise RunFailed(f"{server.name} answered {answer.status} to {path.partition('?')[0]}{': ' + said if said else '.'}")
    try:
        return answer.json()
    except ValueError:
        return None
