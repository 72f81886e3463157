"""What computes a batch: llama.cpp, or a cost model with a clock."""

from __future__ import annotations

from pathlib import Path

from engine.backends.base import Backend, BackendOptions, ModelError
from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import Clock


def create_backend(kind: str, model_path: Path | None, options: BackendOptions, clock: Clock) -> Backend:
    """The backend called `kind`: "llama" or "simulated" (which reads no model).

    Raises ModelError with one sentence for the operator when the model cannot be served or the kind is unknown.
    """
    if kind == "simulated":
        return SimulatedBackend(options, CostModel(), clock)
    if kind != "llama":
        raise ModelError(f"There is no backend called {kind}: use llama or simulated.")
    if model_path is None:
        raise ModelError("The llama backend needs a model: give the path of a GGUF file.")
    from engine.backends.llama import LlamaBackend  # only here: the binding takes a second to load

    return LlamaBackend(model_path, options)
