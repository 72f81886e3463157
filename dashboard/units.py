"""The parts of a server that schedule for themselves (a router's models, a vLLM's engines) as rows of words. Pure.

js/live/units.js keeps them true and writes the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard import present
from dashboard.present import State

TITLES = {"model": "Models", "engine": "Engines"}
UNKNOWN = "–"
#: Heads of the columns, which stand before each figure where there is no room for columns.
LABELS = {
    "running": "Running",
    "waiting": "Waiting",
    "n_slots": "Slots, tokens each",
    "kv_use": "KV used",
    "prefix_hits": "Prefix hits",
    "prompt_tps": "Prompt tokens/s",
    "gen_tps": "Generated tokens/s",
    "ttft": "TTFT p50, p95",
    "itl": "ITL p50, p95",
}


@dataclass(frozen=True, slots=True)
class Cell:
    key: str
    text: str  # "–" where it is not told
    why: str  # why it is not, where that is known

    @property
    def label(self) -> str:
        return LABELS[self.key]


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    model: str
    mark: str
    tone: str
    text: str
    detail: str
    cells: tuple[Cell, ...]


def title(state: State) -> str:
    units = state.get("units") or []
    return TITLES.get(units[0]["kind"], "Units") if units else "Units"


def rows(state: State) -> list[Row]:
    return [_row(unit) for unit in state.get("units") or []]


def _row(unit: State) -> Row:
    mark, tone, *_ = present.HEALTH.get(unit["state"], ("idle", "q"))
    missing = unit.get("missing") or {}
    cells = tuple(Cell(key, text or UNKNOWN, "" if text else str(missing.get(key) or "")) for key, text in _cells(unit))
    model = unit.get("model") or ""
    return Row(unit["id"], "" if model == unit["id"] else model, mark, tone, unit["text"], unit.get("detail") or "", cells)


def _cells(unit: State) -> list[tuple[str, str]]:
    return [
        ("running", _number(unit.get("running"))),
        ("waiting", _number(unit.get("waiting"))),
        ("n_slots", _slots(unit)),
        ("kv_use", _share(unit.get("kv_use"))),
        ("prefix_hits", _share(unit.get("prefix_hits"))),
        ("prompt_tps", _number(unit.get("prompt_tps"))),
        ("gen_tps", _number(unit.get("gen_tps"))),
        ("ttft", _pair(unit.get("ttft"))),
        ("itl", _pair(unit.get("itl"))),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return present.grouped(value, 1 if 0 < value < 9.95 and value != int(value) else 0)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.0f} %"


def _slots(unit: State) -> str:
    if not unit.get("n_slots"):
        return ""
    each = unit.get("n_ctx_slot")
    return f"{unit['n_slots']} × {present.grouped(each)}" if each else str(unit["n_slots"])


def _pair(of: Any) -> str:
    return f"{_time(of.get('p50'))}, {_time(of.get('p95'))}" if of and of.get("n") else ""


def _time(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1000:.0f} ms" if seconds < 0.0995 else f"{seconds:.{2 if seconds < 9.95 else 0}f} s"
