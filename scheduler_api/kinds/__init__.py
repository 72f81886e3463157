"""Kinds of inference servers: how each is recognised, watched and told apart."""

from __future__ import annotations

from scheduler_api.kinds import llama_state, openai_state, vllm_state
from scheduler_api.kinds.base import Observed
from scheduler_api.kinds.engine import EngineKind
from scheduler_api.kinds.llama_server import LlamaServerKind
from scheduler_api.kinds.openai import OpenAiKind
from scheduler_api.kinds.vllm import VllmKind
from scheduler_api.models import ServerKind

_WHY_NOT = {
    ServerKind.LLAMA_SERVER: llama_state.WHY_NOT,
    ServerKind.VLLM: vllm_state.WHY_NOT,
    ServerKind.OPENAI: openai_state.WHY_NOT,
}


def why_not_switched(kind: str) -> str:
    """Why servers of that kind cannot switch policies; "" when they can."""
    return _WHY_NOT.get(ServerKind(kind), "")


def observed(kind: str, model: str = "") -> Observed:
    """A fresh watcher of that kind; `model` is the one given with the registration. Raises ValueError for a kind that is none."""
    match ServerKind(kind):
        case ServerKind.ENGINE:
            return EngineKind()
        case ServerKind.LLAMA_SERVER:
            return LlamaServerKind()
        case ServerKind.VLLM:
            return VllmKind()
        case ServerKind.OPENAI:
            return OpenAiKind(model)
