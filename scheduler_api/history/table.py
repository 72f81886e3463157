"""What the API answers, as rows of a CSV file, the header first. Pure.

Text that a spreadsheet would take as a formula gets an apostrophe in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

type Json = dict[str, Any]
type Cell = str | int | float | None
type Rows = Iterator[list[Cell]]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ITERATION = (
    "i",
    "i_to",
    "t",
    "dur_ms",
    "prompt",
    "gen",
    "prompt_tokens",
    "gen_tokens",
    "phase",
    "cohort",
    "policy",
    "queue",
    "error",
)
_TASK = (
    *("n", "i", "task", "slot", "client", "group", "reason", "error", "n_prompt", "n_cached", "n_generated", "submitted_at"),
    *("assigned_at", "first_visit_at", "prompt_done_at", "first_token_at", "finished_at", "skipped_s", "paused_s", "worst_gap_s"),
)
_POINT = (
    *("t", "step_s", "observed_s", "prompt_tokens", "generated_tokens", "cached_tokens", "prompt_tps", "gen_tps", "busy"),
    *("iterations", "queue_mean", "queue_max", "worst_stall_s", "stalls", "kv_used_max", "cache_hit", "tasks"),
    *("jain_slots", "jain_clients", "restarts"),
)
_PARTS = ("p50", "p95", "p99", "n")


def cell(value: Any) -> Cell:
    """A bool as 0 or 1; a list of pairs as `slot:tokens` parted by spaces."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return " ".join(":".join(str(part) for part in each) if isinstance(each, list) else str(each) for each in value)
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value if isinstance(value, int | float) else None


def _rows(columns: Sequence[str], found: Iterable[Json]) -> Rows:
    yield list(columns)
    for each in found:
        yield [cell(each.get(name)) for name in columns]


def iterations(found: Iterable[Json]) -> Rows:
    return _rows(_ITERATION, (_measured(each) for each in found))


def _measured(each: Json) -> Json:
    took: float = each["dur_ms"] if "dur_ms" in each else sum(each[name] or 0.0 for name in ("plan_ms", "run_ms", "settle_ms"))
    sums = {f"{kind}_tokens": sum(n for _, n in each[kind]) for kind in ("prompt", "gen")}
    return {**each, "dur_ms": round(took, 3), "i_to": each.get("i_to", each["i"]), **sums}


def tasks(found: Iterable[Json]) -> Rows:
    return _rows(_TASK, found)


def points(found: Iterable[Json]) -> Rows:
    spread = [f"{name}_{part}" for name in ("ttft", "itl") for part in _PARTS]
    return _rows([*_POINT, *spread], ({**each, **_flat(each, ("ttft", "itl"))} for each in found))


def fairness(found: Json) -> Rows:
    """One row a slot and one a client, then one a figure."""
    yield ["kind", "name", "prompt_tokens", "gen_tokens", "tokens", "share", "busy_s", "tasks", "value"]
    for slot in found["slots"]:
        tokens = slot["prompt_tokens"] + slot["gen_tokens"]
        yield ["slot", slot["slot"], slot["prompt_tokens"], slot["gen_tokens"], tokens, slot["share"], slot["busy_s"], None, None]
    for client in found["clients"]:
        yield ["client", cell(client["client"]), None, None, client["tokens"], client["share"], None, client["tasks"], None]
    figures = {**found, **_flat(found, ("ttft", "itl"))}
    for name, value in figures.items():
        if not isinstance(value, list | dict):
            yield ["figure", name, None, None, None, None, None, None, cell(value)]


def stall(found: Json) -> Rows:
    """One row a blocker, then one for each order that was replayed."""
    yield ["kind", "slot", "client", "task", "iterations", "tokens", "seconds", "share", "order", "wait_s", "of", "text"]
    for each in found["blockers"]:
        names = ("slot", "client", "task", "iterations", "tokens", "seconds", "share")
        yield ["blocker", *(cell(each[name]) for name in names), None, None, None, None]
    for each in found["elsewhere"]:
        told = [cell(each["policy"]["prefill_order"]), each["wait_s"], each["of"], cell(each["text"])]
        yield ["elsewhere", found["slot"], None, found["task"], *(None for _ in range(4)), *told]


def _flat(found: Json, names: Iterable[str]) -> Json:
    return {f"{name}_{part}": found[name][part] for name in names for part in _PARTS}
