"""The parts of a target that schedule for themselves: a router's models, a vLLM's engines (docs/protocol.md section 2). Pure."""

from __future__ import annotations

from typing import Any

from scheduler_api.kinds.fields import Json

#: What a unit may tell; None is not told, and its `missing` then says why where the reason is known.
_COUNTS = ("running", "waiting", "n_slots", "n_ctx_slot", "kv_use", "prefix_hits", "prompt_tps", "gen_tps", "ttft", "itl", "tpot")


def unit(id: str, kind: str, state: str, text: str, *, detail: str = "", missing: Json | None = None, **told: Any) -> Json:
    """`kind` is `model` or `engine`; `state` a state of health or `unloaded`. Raises KeyError for what no unit tells."""
    for name in told.keys() - set(_COUNTS) - {"model"}:
        raise KeyError(name)
    known = {"id": id, "kind": kind, "model": "", "state": state, "text": text, "detail": detail}
    return known | dict.fromkeys(_COUNTS) | told | {"missing": missing or {}}
