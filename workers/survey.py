"""What a registered server offers to a load: asked before a run is started, and again when it begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler_api.models import Server, ServerKind
from workers import target
from workers.errors import RunFailed
from workers.load.dialects import Abilities

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Survey:
    """`policy`: the engine's policy object as found, None where there is none to switch. `model`: for OpenAI's routes.

    `doubt`: about that model, in words.
    """

    can: Abilities
    policy: Json | None = None
    model: str = ""
    conditions: Json = field(default_factory=dict)
    busy: tuple[int, ...] = ()
    doubt: str = ""


def survey(server: Server, *, adapters: bool = False) -> Survey:
    """`adapters`: count the LoRA adapters too. Raises ServerUnreachable, RunFailed."""
    if server.kind == ServerKind.ENGINE:
        return _engine(server, adapters)
    return _llama_server(server, adapters) if server.kind == ServerKind.LLAMA_SERVER else _openai(server)


def _engine(server: Server, adapters: bool) -> Survey:
    state = target.state(server)
    told, kv, policy = state.get("server"), state.get("kv"), state.get("policy")
    if not isinstance(told, dict) or not isinstance(policy, dict) or not isinstance(kv, dict):
        raise RunFailed("The server did not describe itself as a Slotboard engine does.")
    names = ("name", "backend", "build", "n_slots", "n_ctx", "n_ctx_slot", "n_batch", "n_ubatch", "n_threads")
    return Survey(
        Abilities(
            what="The engine",
            token_ids=True,
            pins=True,
            labels=True,
            switches=True,
            adapters=target.adapters(server) if adapters else None,
            n_slots=told.get("n_slots"),
            n_ctx=told.get("n_ctx_slot"),
        ),
        policy,
        conditions={
            "server": {name: told.get(name) for name in names},
            "kv_mode": kv.get("mode"),
            "kv_from": kv.get("resolved_from"),
        },
        busy=tuple(slot["id"] for slot in state.get("slots", []) if slot.get("state") != "idle"),
    )


def _llama_server(server: Server, adapters: bool) -> Survey:
    props = target.props(server)
    n_ctx = (props.get("default_generation_settings") or {}).get("n_ctx")
    can = Abilities(
        what="llama-server",
        token_ids=True,
        pins=True,
        labels=False,
        switches=False,
        adapters=target.adapters(server) if adapters else None,
        n_slots=props.get("total_slots"),
        n_ctx=n_ctx,
    )
    conditions = {"server": {"name": server.name, "build": props.get("build_info"), "n_slots": can.n_slots, "n_ctx_slot": n_ctx}}
    return Survey(can, conditions=conditions, busy=tuple(target.busy_slots(server, None)))


def _openai(server: Server) -> Survey:
    """What requests would have to be tried for is left open: nothing is sent before a run begins."""
    model = target.model(server)
    can = Abilities(
        what="An OpenAI-compatible server",
        token_ids=None,
        pins=False,
        labels=False,
        switches=False,
        n_ctx=model.n_ctx,
        cache=False,
    )
    conditions = {"server": {"name": server.name, "model": model.name, "n_ctx_slot": model.n_ctx}}
    return Survey(can, model=model.name, conditions=conditions, doubt=model.told)
