"""Whether a server, as GET /scheduler describes it, can run a scenario at a scale, and what is worth knowing beforehand. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.errors import RunFailed
from workers.scenarios import Scenario, Sizes

type Json = dict[str, Any]

FEWEST_BATCHES = 3  # of a cold prompt, for anything to wait behind


@dataclass(frozen=True, slots=True)
class Setup:
    policy: Json
    n_batch: int
    conditions: Json
    warnings: tuple[str, ...] = field(default=())


def context_problem(n_ctx_slot: int | None, n_slots: int | None, scenario: Scenario, sizes: Sizes) -> str:
    """One sentence with the numbers, or nothing when the prompts fit."""
    last = max(scenario.cold.slot, scenario.short.slot)
    if n_slots is not None and n_slots <= last:
        return f"The server has {n_slots} slots, and the scenario needs slot {last}; start it with more slots."
    if n_ctx_slot is not None and n_ctx_slot < sizes.context_needed:
        return (
            f"A slot holds {n_ctx_slot:,} tokens, and the scenario needs {sizes.context_needed:,} at this scale; "
            f"choose a scale of at most {n_ctx_slot / sizes.context_needed:.2g} times this one, or a server with more context."
        )
    return ""


def kv_warning(kv_mode: str | None) -> str:
    if kv_mode == "unified":
        return "The KV cache is unified, so prompts keep physical order: another prefill order has no effect here."
    return ""


def batch_warning(n_batch: int | None, sizes: Sizes) -> str:
    if n_batch and (count := -(-sizes.cold // n_batch)) < FEWEST_BATCHES:
        return (
            f"The cold prompt of {sizes.cold:,} tokens fills only {count} batch{'es' if count > 1 else ''} of {n_batch:,} at "
            "this scale, too little for the short request to wait behind; a larger scale shows more."
        )
    return ""


def busy_warning(slots: list[Json], scenario: Scenario) -> str:
    busy = [str(slot["id"]) for slot in slots if slot.get("state") != "idle"]
    if not busy:
        return ""
    ours = {str(scenario.cold.slot), str(scenario.short.slot)} & set(busy)
    text = f"At the start {'slots' if len(busy) > 1 else 'slot'} {', '.join(busy)} had other work, so times include it"
    return f"{text}; the run's own requests wait until {', '.join(sorted(ours))} is free." if ours else f"{text}."


def check_server(state: Mapping[str, Any], scenario: Scenario, sizes: Sizes) -> Setup:
    """Raises RunFailed when the scenario cannot run there."""
    server, kv, policy = state.get("server"), state.get("kv"), state.get("policy")
    if not isinstance(server, dict) or not isinstance(policy, dict) or not isinstance(kv, dict):
        raise RunFailed("The server did not describe itself as a Slotboard engine does.")
    if problem := context_problem(server.get("n_ctx_slot"), server.get("n_slots"), scenario, sizes):
        raise RunFailed(problem)
    n_batch = int(server.get("n_batch") or 2048)
    warnings = (kv_warning(kv.get("mode")), batch_warning(n_batch, sizes), busy_warning(state.get("slots", []), scenario))
    names = ("name", "backend", "build", "n_slots", "n_ctx", "n_ctx_slot", "n_batch", "n_ubatch", "n_threads")
    conditions = {
        "server": {name: server.get(name) for name in names},
        "kv_mode": kv.get("mode"),
        "kv_from": kv.get("resolved_from"),
        "scenario": {"name": scenario.name, "version": scenario.version},
        "tokens": {"cold": sizes.cold, "depth": sizes.depth, "short": sizes.short, "n_predict": sizes.n_predict},
    }
    return Setup(policy, n_batch, conditions, tuple(text for text in warnings if text))
