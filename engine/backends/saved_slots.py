"""A slot's cells as a file, which is one that llama-server reads too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.backends.base import BackendError


def save(context: Any, slot: int, tokens: Sequence[int], path: Path) -> None:
    """Whole or not at all. Raises BackendError where the memory cannot give just these tokens, or the file cannot be written."""
    part = path.with_name(path.name + ".part")
    try:
        if not context.memory_seq_rm(slot, len(tokens), -1):
            raise BackendError("this model's memory holds more than the slot's tokens and cannot drop the rest")
        context.save_state_seq_file(str(part), slot, list(tokens))
        part.replace(path)
    except (OSError, ValueError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        raise BackendError(f"the slot could not be saved: {error}") from error


def restore(context: Any, slot: int, path: Path, n_ctx_slot: int) -> list[int]:
    """The file's tokens. Raises BackendError; the slot's cells are then in no known state."""
    try:
        tokens: list[int] = context.load_state_seq_file(str(path), slot, n_ctx_slot)
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError("the file is no saved slot of this model, or there is no room for it in the KV cache") from error
    return tokens
