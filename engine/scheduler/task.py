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


VECTOR_TYPES = (TaskType.EMBEDDING, TaskType.RERANK)
"""Done with their prompts: they end in vectors and generate nothing."""

Lora = tuple[tuple[int, float], ...]
"""Adapters by id with their scales, in order of id; those with a scale of 0 are left out, so equal effects are equal lists."""


@dataclass(frozen=True, slots=True)
class Group:
    """What must be equal for two slots to share a batch: task type and the LoRA list with its scales."""

    type: TaskType = TaskType.COMPLETION
    lora: Lora = ()


SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama-server's sampling fields, under its names and with its defaults.

    `seed` None draws a fresh one for each task. `repeat_last_n` and `dry_penalty_last_n` are tokens, -1 the whole context.
    `samplers` is the order of the chain's links; `grammar` is GBNF with the rule `root`. `n_probs`: probabilities of this many
    tokens are wanted beside each drawn one; `post_sampling_probs`: those that the samplers left, not the model's own.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: tuple[str, ...] = SAMPLERS
    grammar: str = ""
    n_probs: int = 0
    post_sampling_probs: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt on its way through one slot.

    `prompt` holds token ids. `n_predict` is the most tokens to generate (-1: until the context ends). `eog` are the token ids
    that end generation (empty under ignore_eos). `id_slot` -1 means any slot. A task with `children` takes one more slot for
    each child id; the children wait for its prompt and get a copy of its KV cells, then sample on their own. A context shift
    keeps the first `n_keep` cells and drops `n_discard` behind them (0: half of the rest). `draft_max` and `draft_min` bound its
    drafts (-1: as the policy says).
    """

    id: int
    prompt: Sequence[int] = field(repr=False)  # what users write stays out of logs
    n_predict: int = -1
    id_slot: int = -1
    cache_prompt: bool = True
    group: Group = field(default_factory=Group)
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eog: frozenset[int] = frozenset()
    client: str = ""
    submitted_at: float = 0.0
    children: tuple[int, ...] = ()
    n_keep: int = 0
    n_discard: int = 0
    draft_max: int = -1
    draft_min: int = -1
