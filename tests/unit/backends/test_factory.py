from __future__ import annotations

from pathlib import Path

import pytest

from engine.backends import SPINS, create_backend, limit_spinning
from engine.backends.base import BackendOptions, ModelError
from engine.clock import VirtualClock

OPTIONS = BackendOptions(n_slots=1, n_ctx=512, kv_mode="split")


def test_simulated_backend_reads_no_model() -> None:
    assert create_backend("simulated", None, OPTIONS, VirtualClock()).info.backend == "simulated"


@pytest.mark.parametrize(("kind", "sentence"), [("gpu", "no backend called gpu"), ("llama", "needs a model")])
def test_impossible_wish_is_one_sentence(kind: str, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        create_backend(kind, None, OPTIONS, VirtualClock())


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "cannot be read"), (b"PK\x03\x04", "not a GGUF file"), (b"GGUF", "damaged")]
)
def test_bad_model_file_is_one_sentence(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=sentence):
        create_backend("llama", path, OPTIONS, VirtualClock())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_operators_own_waiting_policy_wins(given: dict[str, str], expected: dict[str, str]) -> None:
    limit_spinning(given)
    assert given == expected
