"""What the runner needs of whatever computes a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from engine.drafts import Mode as DraftRope
from engine.scheduler.plan import Outcome, Plan

KvMode = Literal["split", "unified"]
Pooling = Literal["none", "mean", "cls", "last", "rank"]


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """A draft model to load beside the model. With `optional` one that cannot be used is left out, else it ends the start."""

    path: Path
    rope: DraftRope = "auto"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Start-up options of every backend, as the command line resolved them."""

    n_slots: int
    n_ctx: int  # of all slots together; the backend divides it under split KV
    kv_mode: KvMode
    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int = 0  # 0: one for each core
    n_threads_batch: int = 0  # 0: as n_threads
    lora: tuple[Path, ...] = ()  # adapter files; an adapter's id is its place
    embeddings: bool = False  # tasks may ask for embeddings
    pooling: Pooling | None = None  # None: what the model's file says
    draft: DraftOptions | None = None


@dataclass(frozen=True, slots=True)
class DraftInfo:
    """What became of the draft model. `outcome` is one of `engine.drafts.Outcome`, "unreadable" where a file could not be used.

    `text` says why in a sentence; `sections` are the rotary sections that the draft runs with, None where it runs without.
    """

    path: str
    loaded: bool
    outcome: str
    text: str
    sections: tuple[int, int, int, int] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """A loaded adapter, with what its file says it is for."""

    path: str
    task_name: str = ""
    prompt_prefix: str = ""


@dataclass(frozen=True, slots=True)
class FimTokens:
    """What marks the parts of a text with a gap; -1 for a token that the vocabulary does not have."""

    prefix: int = -1
    suffix: int = -1
    middle: int = -1
    repo: int = -1
    separator: int = -1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a client or an operator may ask about the loaded model. Context sizes in tokens, after padding and capping."""

    name: str
    path: str
    build: str
    backend: str  # "llama" or "simulated"
    kv_mode: KvMode
    n_ctx: int
    n_ctx_slot: int
    n_ctx_train: int
    n_vocab: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_params: int
    size_bytes: int
    can_trim: bool  # the memory can drop the tail of a sequence; else a changed prompt is processed from its start
    bos: int
    add_bos: bool
    bos_text: str
    eos_text: str
    eog: frozenset[int] = field(default_factory=frozenset)
    chat_template: str = ""
    ftype: str = ""
    lora: tuple[LoraAdapter, ...] = ()
    fim: FimTokens = FimTokens()
    generates: bool = True  # False: an encoder, good for embeddings alone
    can_shift: bool = False  # positions of cells can be moved
    pooling: Pooling = "none"
    eos: int = -1
    sep: int = -1
    add_eos: bool = False
    add_sep: bool = False
    rerank_template: str = ""  # of a query and a document, where the model has one
    draft: DraftInfo | None = None  # None: no draft was asked for
    can_draft: bool = True  # the memory can take back the last few tokens, so they may be drafted ones
    draft_model: bool = False  # one is loaded that can draft
    draft_unfit: str = ""  # why a draft model that was asked for cannot draft


class BackendError(Exception):
    """The batch failed as a whole; the server lives on.

    BackendError
    ├── KvFull       no room for the batch in the KV cache: shifts and starts were made, nothing of the entries was written
    └── ModelError   the model could not be loaded; the message is one sentence for the operator
    """


class KvFull(BackendError):
    pass


class ModelError(BackendError):
    pass


class Backend(Protocol):
    """One model with one sequence for each slot. Called by one thread at a time, but for the text methods.

    The methods from `tokenize` to `schema_grammar` may be called from any thread at any moment.
    """

    info: ModelInfo

    def run(self, plan: Plan) -> Outcome:
        """Trim and start slots, decode the entries as one batch, copy to children, sample where output is wanted.

        Raises KvFull or BackendError when the batch as a whole failed. Releases the GIL while it computes.
        """
        ...

    def clear(self, slot: int) -> None:
        """Drop every cell of a slot."""
        ...

    def save(self, slot: int, tokens: Sequence[int], path: Path) -> None:
        """Write the slot's cells, which hold `tokens`, to a file. Raises BackendError; the file is whole or as before."""
        ...

    def restore(self, slot: int, path: Path) -> list[int]:
        """Fill an idle slot from a file; the tokens that its cells hold then. Raises BackendError, and the slot is empty."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]: ...

    def detokenize(self, tokens: Sequence[int]) -> str: ...

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the output; special tokens give none."""
        ...

    def check_grammar(self, grammar: str) -> None:
        """ValueError with what is wrong with a GBNF grammar."""
        ...

    def schema_grammar(self, schema: dict[str, Any]) -> str:
        """GBNF for a JSON schema; ValueError when there is none."""
        ...

    def close(self) -> None: ...
