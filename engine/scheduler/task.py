"""What a client asked for: a task, its sampling wishes and its compatibility group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class TaskType(StrEnum):
    COMPLETION = "completion"
    INFILL = "infill"
    EMBEDDING = "embedding"
    RERANK = "rerank"


@dataclass(frozen=True, slots=True)
class Group:
    """What must be equal for two slots to share a batch: task type and the LoRA list with its scales."""

    type: TaskType = TaskType.COMPLETION
    lora: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama-server's sampling fields with its defaults; `seed` None draws a fresh one for each task."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt on its way through one slot.

    `prompt` holds token ids. `n_predict` is the most tokens to generate (-1: until the context ends). `eog` are the token ids
    that end generation (empty under ignore_eos). `id_slot` -1 means any slot. A task with `children` takes one more slot for
    each child id; the children wait for its prompt and get a copy of its KV cells, then sample on their own.
    """

    id: int
    prompt: Sequence[int]
    n_predict: int = -1
    id_slot: int = -1
    cache_prompt: bool = True
    group: Group = field(default_factory=Group)
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eog: frozenset[int] = frozenset()
    client: str = ""
    submitted_at: float = 0.0
    children: tuple[int, ...] = ()
