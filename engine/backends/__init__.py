"""What computes a batch: llama.cpp, or a cost model with a clock."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from pathlib import Path

from engine.backends.base import Backend, BackendOptions, ModelError
from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import Clock

log = logging.getLogger("engine")

SPINS = "100000"  # about 2 ms: longer than any pause between two steps, shorter than a time slice


def limit_spinning(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP's threads wait for each other asleep, after a short spin, unless the operator chose otherwise.

    By default they spin for up to 15 ms. As soon as anything else wants the cores (the HTTP thread, a client, a console), each of
    the dozens of barriers in a decode step then costs a time slice: steps take 100 times as long. See docs/adr/0004.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS)


limit_spinning(os.environ)  # before the binding is imported: OpenMP reads it once, when its library is loaded


def create_backend(kind: str, model_path: Path | None, options: BackendOptions, clock: Clock) -> Backend:
    """The backend called `kind`: "llama" or "simulated" (which reads no model).

    Raises ModelError with one sentence for the operator when the model cannot be served or the kind is unknown.
    """
    if kind == "simulated":
        if options.draft is not None:
            log.warning("The simulated backend computes no model, so it loads no draft model either")
        return SimulatedBackend(options, CostModel(), clock)
    if kind != "llama":
        raise ModelError(f"There is no backend called {kind}: use llama or simulated.")
    if model_path is None:
        raise ModelError("The llama backend needs a model: give the path of a GGUF file.")
    from engine.backends.llama import LlamaBackend  # only here: the binding takes a second to load

    return LlamaBackend(model_path, options)
