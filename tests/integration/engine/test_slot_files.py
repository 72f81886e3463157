"""Slots erased, saved and restored on the real engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

PROMPT = list(range(3000, 3200))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[EngineProcess]:
    with running_engine("-np", "2", "-c", "2048", "--no-kv-unified", "--slot-save-path", str(folder)) as engine:
        yield engine


@pytest.fixture
def engine(started: EngineProcess, folder: Path) -> EngineProcess:
    """Its slots and its folder are empty."""
    for slot in (0, 1):
        act(started, slot, "erase")
    for path in folder.iterdir():
        path.unlink()
    return started


def act(engine: EngineProcess, slot: int, action: str, status: int = 200, **body: Any) -> dict[str, Any]:
    response = engine.client.post(f"/slots/{slot}?action={action}", json=body)
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


def ask(engine: EngineProcess, slot: int) -> dict[str, Any]:
    return engine.complete(prompt=PROMPT, id_slot=slot, n_predict=8, return_tokens=True)


def test_a_saved_slot_goes_on_in_another_one(engine: EngineProcess, folder: Path) -> None:
    first = ask(engine, 0)
    saved = act(engine, 0, "save", filename="warm.bin")
    assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (0, "warm.bin", len(PROMPT) + 7)
    assert saved["n_written"] == (folder / "warm.bin").stat().st_size
    assert [path.name for path in folder.iterdir()] == ["warm.bin"]
    restored = act(engine, 1, "restore", filename="warm.bin")
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
    again = ask(engine, 1)
    assert again["timings"]["cache_n"] == len(PROMPT) - 1
    assert again["tokens"] == first["tokens"]


def test_an_erased_slot_starts_from_nothing(engine: EngineProcess) -> None:
    first = ask(engine, 0)
    assert act(engine, 0, "erase") == {"id_slot": 0, "n_erased": len(PROMPT) + 7}
    again = ask(engine, 0)
    assert again["timings"]["cache_n"] == 0
    assert again["tokens"] == first["tokens"]


def test_a_file_that_is_no_slot_leaves_an_empty_one(engine: EngineProcess, folder: Path) -> None:
    ask(engine, 0)
    (folder / "other.bin").write_bytes(b"something else" * 100)
    for name in ("other.bin", "missing.bin"):
        assert "Unable to restore" in act(engine, 0, "restore", 400, filename=name)["error"]["message"]
    assert ask(engine, 0)["timings"]["cache_n"] == 0


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "", "..", ".x", "a\\b", "x" * 300, "a\n", 5])
def test_a_name_with_a_path_is_refused(engine: EngineProcess, name: Any) -> None:
    assert act(engine, 0, "save", 400, filename=name)["error"]["field"] == "filename"


def test_unknown_slots_and_actions(engine: EngineProcess) -> None:
    act(engine, 2, "erase", 400)
    act(engine, 0, "polish", 400)
    assert engine.client.post("/slots/x?action=erase", json={}).status_code == 400


def test_a_busy_slot_is_waited_for(engine: EngineProcess) -> None:
    erased: list[dict[str, Any]] = []
    with engine.stream(prompt=PROMPT, id_slot=0, n_predict=200, ignore_eos=True) as events:
        next(events)
        waiting = threading.Thread(target=lambda: erased.append(act(engine, 0, "erase")))
        waiting.start()
        assert list(events)[-1]["tokens_predicted"] == 200
    waiting.join(20)
    assert erased == [{"id_slot": 0, "n_erased": len(PROMPT) + 199}]


def test_without_a_folder_nothing_is_saved() -> None:
    with running_engine("-np", "1", "-c", "512") as engine:
        act(engine, 0, "save", 501, filename="x")
        act(engine, 0, "restore", 501, filename="x")
        assert act(engine, 0, "erase")["n_erased"] == 0
