"""Context shift on the real engine: what is generated after it, and that other slots do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import SMALL, write_small_model

pytestmark = pytest.mark.model

N_CTX = 256
PROMPT = list(range(300, 500))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer: a cell depends on its token alone, so a shifted slot must go on as a prompt of the cells that are left."""
    return write_small_model(tmp_path_factory.mktemp("models") / "one.gguf", replace(SMALL, layers=1))


@pytest.fixture(scope="module", params=["--no-kv-unified", "--kv-unified"])
def engine(model: Path, request: pytest.FixtureRequest) -> Iterator[EngineProcess]:
    size = N_CTX * 3 if request.param == "--no-kv-unified" else N_CTX
    with running_engine("-m", str(model), "-np", "3", "-c", str(size), request.param, "--context-shift", "--keep", "9") as engine:
        yield engine


def ask(engine: EngineProcess, prompt: list[int], n: int, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": prompt, "n_predict": n, "return_tokens": True, "ignore_eos": True, "cache_prompt": False}
    return engine.complete(**body, **more)


def shifted(cells: list[int], keep: int, discard: int = 0) -> list[int]:
    return cells[:keep] + cells[keep + (discard or (len(cells) - keep) // 2) :]


@pytest.mark.parametrize(
    ("wish", "keep", "discard"), [({}, 10, 0), ({"n_keep": -1}, 201, 0), ({"n_keep": 0, "n_discard": 100}, 1, 100)]
)
def test_a_full_slot_goes_on_as_from_the_cells_that_are_left(
    engine: EngineProcess, wish: dict[str, int], keep: int, discard: int
) -> None:
    answer = ask(engine, PROMPT, 75, **wish)
    assert (answer["truncated"], answer["stop_type"], answer["tokens_predicted"]) == (True, "limit", 75)
    tokens = answer["tokens"]
    full = N_CTX - 1 - len(PROMPT)  # tokens with a cell when the slot is full; the next one is drawn and waits for room
    left = shifted(PROMPT + tokens[:full], keep, discard)
    before = ask(engine, PROMPT, full + 1)
    assert (before["tokens"], before["truncated"]) == (tokens[: full + 1], False)
    after = ask(engine, [*left, tokens[full]], 75 - full - 1)
    assert after["tokens"] == tokens[full + 1 :]


def test_without_the_option_a_full_slot_ends(model: Path) -> None:
    with running_engine("-m", str(model), "-np", "1", "-c", str(N_CTX)) as engine:
        answer = ask(engine, PROMPT, -1)
        assert (answer["truncated"], answer["stop_type"], answer["tokens_predicted"]) == (True, "limit", N_CTX - len(PROMPT))


def test_other_slots_do_not_notice(model: Path) -> None:
    with running_engine("-m", str(model), "-np", "3", "-c", str(3 * N_CTX), "--no-kv-unified", "--context-shift") as engine:
        alone = ask(engine, PROMPT[:20], 150, id_slot=1)["tokens"]
        with engine.stream(prompt=PROMPT, n_predict=3000, id_slot=0, ignore_eos=True) as events:
            for _ in range(20):
                next(events)
            assert ask(engine, PROMPT[:20], 150, id_slot=1)["tokens"] == alone
            assert engine.get("/slots")[0]["is_processing"]
        again = ask(engine, PROMPT, 75, id_slot=0)
        assert ask(engine, PROMPT, 75, id_slot=2)["tokens"] == again["tokens"]


def test_the_cache_of_a_shifted_slot_holds_what_it_says(engine: EngineProcess) -> None:
    answer = engine.complete(prompt=PROMPT, n_predict=75, return_tokens=True, ignore_eos=True, id_slot=0)
    full = N_CTX - 1 - len(PROMPT)
    left = shifted(PROMPT + answer["tokens"][:full], 10) + answer["tokens"][full:-1]
    again = engine.complete(prompt=[*left, 777], n_predict=10, return_tokens=True, ignore_eos=True, id_slot=0)
    assert again["timings"]["cache_n"] == len(left) == answer["tokens_cached"]
    assert again["tokens"] == ask(engine, [*left, 777], 10)["tokens"]
