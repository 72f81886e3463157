"""What is fixed at start-up and known to the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Sizes in tokens, as the backend resolved them: `n_ctx` is the whole KV pool, `n_ctx_slot` what one slot may hold.

    `kv_from` says whether a flag or automatic parallelism chose the KV mode. `can_trim`: the memory can drop the tail of a
    sequence. `split_embeddings`: an embedding prompt may be spread over batches (causal models with last-token pooling).
    `context_shift`: a slot that is full while it generates forgets a part of its text instead of ending its task.
    `can_draft`: the memory can take drafted tokens back; `draft_model`: one is loaded beside the model;
    `draft_unfit`: why the one that was asked for cannot draft.
    `prompt_stops`: tokens before a prompt's end at which a batch takes no more of it, as servers do whose memory can only go back
    to checkpoints (hybrid models). llama.cpp's backend needs none; a simulation of such a server does.
    """

    n_slots: int
    n_ctx_slot: int
    n_ctx: int
    n_batch: int = 2048
    n_ubatch: int = 512
    kv_mode: Literal["split", "unified"] = "split"
    kv_from: Literal["flag", "auto"] = "flag"
    can_trim: bool = True
    slot_prompt_similarity: float = 0.10
    cont_batching: bool = True
    split_embeddings: bool = False
    context_shift: bool = False
    can_draft: bool = True
    draft_model: bool = False
    draft_unfit: str = ""
    prompt_stops: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n_slots < 0:
            raise ValueError("n_slots must not be negative")
        for name in ("n_ctx_slot", "n_ctx", "n_batch", "n_ubatch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if not 0.0 <= self.slot_prompt_similarity <= 1.0:
            raise ValueError("slot_prompt_similarity must lie between 0 and 1")
