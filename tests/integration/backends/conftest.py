from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.backends.base import BackendOptions, KvMode
from engine.backends.llama import LlamaBackend
from engine.tiny_model import DEFAULT_PATH, ensure_tiny_model

MakeBackend = Callable[..., LlamaBackend]


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return ensure_tiny_model(Path(__file__).parents[3] / DEFAULT_PATH)


@pytest.fixture
def make_backend(tiny_model: Path) -> Iterator[MakeBackend]:
    made: list[LlamaBackend] = []

    def make(kv_mode: KvMode = "split", n_slots: int = 3, n_ctx: int = 6144, n_batch: int = 512) -> LlamaBackend:
        options = BackendOptions(n_slots, n_ctx, kv_mode, n_batch=n_batch, n_ubatch=128, n_threads=2)
        made.append(LlamaBackend(tiny_model, options))
        return made[-1]

    yield make
    for backend in made:
        backend.close()
