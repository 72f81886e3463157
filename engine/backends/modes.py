"""What a batch needs of the context beside its tokens: the LoRA adapters of its group, and whether it makes vectors or text.

A module of its own since nearly every server runs without either. It is handed the binding's objects and imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf

from engine.backends.base import BackendError, BackendOptions, LoraAdapter, ModelError, Pooling
from engine.scheduler.plan import Entry, Vectors
from engine.scheduler.task import VECTOR_TYPES, Group

UNSPECIFIED = -1
POOLING_TYPES: dict[Pooling, int] = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}  # llama.cpp's enum
_NAMES: dict[int, Pooling] = {number: name for name, number in POOLING_TYPES.items()}
_RANK_HEADS = ("cls.weight", "cls.output.weight")


def pooling_name(number: int) -> Pooling:
    return _NAMES.get(number, "none")


def set_modes(params: Any, options: BackendOptions) -> None:
    """Adds to a context's parameters what embeddings need. Every token of such a batch is an output.

    A prompt must go through the model in one piece, so batch and sub-batch are of one size, as in llama-server; and llama.cpp
    ends the process unless the number of sequences divides that size.
    """
    if not options.embeddings:
        return
    size = min(params.n_batch, params.n_ubatch)
    size = max(options.n_slots, size - size % options.n_slots)
    params.n_batch = params.n_ubatch = params.n_outputs_max = size
    params.embeddings = True
    params.pooling_type = UNSPECIFIED if options.pooling is None else POOLING_TYPES[options.pooling]


def check_rank_head(path: Path) -> None:
    """ModelError when the model has nothing that makes a score. llama.cpp itself would give out a number without a meaning."""
    names = {tensor.name for tensor in gguf.GGUFReader(path).tensors}
    if not names.intersection(_RANK_HEADS):
        heads = " nor ".join(_RANK_HEADS)
        raise ModelError(f"{path} cannot rerank: it has no head that makes a score (neither a tensor {heads}).")


def load_adapters(model: Any, paths: Sequence[Path]) -> list[Any]:
    """ModelError with the file that cannot be used."""
    adapters = []
    for path in paths:
        try:
            adapter = model.lora_adapter_init(str(path))
        except FileNotFoundError as error:
            raise ModelError(f"The LoRA adapter {path} cannot be read: there is no such file.") from error
        except (ValueError, RuntimeError, OSError) as error:
            raise ModelError(f"The LoRA adapter {path} cannot be loaded: it is damaged, or made for another model.") from error
        if adapter.n_alora_invocation_tokens:
            raise ModelError(f"The adapter {path} is an activated LoRA (it begins to work within a prompt): not supported here.")
        adapters.append(adapter)
    return adapters


def describe_adapter(path: Path, adapter: Any) -> LoraAdapter:
    return LoraAdapter(str(path), _meta(adapter, "task_name"), _meta(adapter, "prompt_prefix"))


def _meta(adapter: Any, name: str) -> str:
    try:
        return str(adapter.meta_val_str(f"adapter.lora.{name}"))
    except ValueError:  # the file does not say
        return ""


class Modes:
    """Sets the context for the group of a batch. Groups change rarely, so most batches cost one comparison of identities.

    `group` is the one that the context is set for. With pooling "none" llama.cpp cannot leave the mode in which it makes vectors
    (it crashes), so a context of that kind stays in it: text costs more there, and is the same.
    """

    def __init__(self, context: Any, adapters: Sequence[Any], pooling: Pooling, *, embeddings: bool) -> None:
        self.group: Group | None = None
        self.makes_vectors = False
        self._context = context
        self._adapters = adapters
        self._pooling = pooling
        self._switches = embeddings and pooling != "none"
        self._lora: object = ()

    def enter(self, group: Group | None) -> None:
        """Raises BackendError when llama.cpp does not take the adapters."""
        if group is None:
            return
        if group.lora != self._lora:
            try:
                self._context.set_adapters_lora([(self._adapters[adapter], scale) for adapter, scale in group.lora])
            except (IndexError, ValueError, RuntimeError) as error:
                self._lora = None
                raise BackendError(f"the LoRA adapters cannot be applied: {error}") from error
            self._lora = group.lora
        self.makes_vectors = group.type in VECTOR_TYPES
        if self._switches:
            self._context.set_embeddings_mode(self.makes_vectors)
        self.group = group

    def vectors(self, outputs: Sequence[tuple[int, Entry]]) -> dict[int, Vectors]:
        """One vector for each finished prompt, or with pooling "none" one for each of its tokens."""
        return {entry.slot: self._vectors(row, entry) for row, entry in outputs}

    def _vectors(self, row: int, entry: Entry) -> Vectors:
        context = self._context
        if self._pooling != "none":
            return (tuple(context.get_embeddings_seq(entry.slot)),)
        return tuple(tuple(context.get_embeddings_ith(place)) for place in range(row + 1 - len(entry.tokens), row + 1))
