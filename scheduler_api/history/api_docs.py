"""What openapi.json says of the addresses in scheduler_api/history/api.py, whose large answers are made without schemas."""

from __future__ import annotations

from typing import Any

from scheduler_api.history.table import Json, Rows

RANGE = (
    ("from", "number", "Unix seconds of the server's clock; without it a minute before the end (a day for history)"),
    ("to", "number", "Unix seconds; without it the newest that is kept"),
)
CSV = ("format", "string", "csv answers with a table in place of JSON")

SPAN = {"from": 1764500000.0, "to": 1764500060.0}
DETAIL: Json = {**SPAN, "oldest": 1764499201.5, "iterations": [], "tasks": [], "marks": [], "gaps": [], "cut": False}
FAIRNESS: Json = {
    **SPAN,
    "slots": [{"slot": 0, "prompt_tokens": 18000, "gen_tokens": 90, "busy_s": 52.1, "share": 0.92}],
    "clients": [{"client": "long-doc", "tokens": 18090, "share": 0.92, "tasks": 1}],
    "jain_slots": 0.58,
    "jain_clients": 0.61,
}
POINT = {"t": 1764400200, "step_s": 600, "observed_s": 600.0, "prompt_tps": 812.5, "gen_tps": 44.1, "queue_max": 3}
HISTORY: Json = {"from": 1764400000.0, "to": 1764500000.0, "step_s": 600, "points": [POINT], "marks": [], "runs": []}
STALL: Json = {
    "slot": 1,
    "task": 9196,
    "client": "chat",
    "from": 1764500090.0,
    "to": 1764500097.6,
    "open": False,
    "reason": "batch full",
    "sentence": "batch full, slot 0 took 2048 of 2048",
    "blockers": [
        {"slot": 0, "client": "long-doc", "task": 9190, "iterations": 9, "tokens": 18000, "seconds": 7.5, "share": 0.99}
    ],
    "elsewhere": [],
    "elsewhere_why_not": "",
}


def described(example: Json, rows: Rows, *more: tuple[str, str, str]) -> dict[str, Any]:
    """For `openapi_extra`. `rows`: of the CSV, whose header is shown; `more`: further parameters as (name, type, what it is)."""
    told = [
        {"in": "query", "name": name, "required": False, "description": words, "schema": {"type": kind}}
        for name, kind, words in (*RANGE, *more, CSV)
    ]
    schema = {"type": "object", "required": sorted(example), "properties": {name: {} for name in example}}
    content = {
        "application/json": {"schema": schema, "example": example},
        "text/csv": {"schema": {"type": "string"}, "example": f"{','.join(map(str, next(rows)))}\r\n"},
    }
    return {"parameters": told, "responses": {200: {"description": "docs/protocol.md section 4", "content": content}}}
