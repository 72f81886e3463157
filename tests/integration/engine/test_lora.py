"""LoRA adapters on the real engine: their effect, their scales, and what they mean for batches and cached prompts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_alora, write_lora, write_small_model

pytestmark = pytest.mark.model

PROMPT = list(range(300, 360))
FIRST, SECOND = [{"id": 0, "scale": 1.0}], [{"id": 1, "scale": 1.0}]
OFF = [{"id": 0, "scale": 0.0}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    write_small_model(folder / "small.gguf")
    write_lora(folder / "a.gguf", range(8))
    write_lora(folder / "b.gguf", range(8, 24))
    write_alora(folder / "alora.gguf")
    (folder / "bad.gguf").write_bytes(b"something else")
    return folder


@pytest.fixture(scope="module")
def engine(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    adapters = ("--lora", f"{files / 'a.gguf'},{files / 'b.gguf'}", "--lora-init-without-apply")
    slots = ("-np", "3", "-c", "6144", "-b", "64", "--no-kv-unified")
    saved = ("--slot-save-path", str(tmp_path_factory.mktemp("slots")))
    with running_engine("-m", str(files / "small.gguf"), *adapters, *slots, *saved) as engine:
        yield engine


def ask(
    engine: EngineProcess, lora: Any = None, *, prompt: Any = PROMPT, slot: int = 0, n: int = 12, **more: Any
) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": prompt, "id_slot": slot, "n_predict": n, "return_tokens": True, "ignore_eos": True, **more}
    return engine.complete(**body) if lora is None else engine.complete(**body, lora=lora)


def tokens(engine: EngineProcess, lora: Any = None, **more: Any) -> list[int]:
    found: list[int] = ask(engine, lora, cache_prompt=False, **more)["tokens"]
    return found


def test_an_adapter_changes_the_output_and_a_scale_of_zero_does_not(engine: EngineProcess) -> None:
    plain, first, second = (tokens(engine, lora) for lora in (OFF, FIRST, SECOND))
    assert plain != first != second != plain
    assert tokens(engine) == plain
    assert tokens(engine, [*FIRST, *SECOND]) not in (first, second)
    assert tokens(engine, [{"id": 1, "scale": 1}, {"id": 1, "scale": 0}]) == plain
    answer = ask(engine, FIRST)
    assert answer["generation_settings"]["lora"] == FIRST
    assert engine.get("/slots")[0]["params"]["lora"] == FIRST


def test_the_scales_of_the_server_hold_for_requests_without_a_list(engine: EngineProcess, files: Path) -> None:
    plain, first = tokens(engine, OFF), tokens(engine, FIRST)
    shown = engine.get("/lora-adapters")
    assert [(item["id"], item["scale"], item["task_name"]) for item in shown] == [(0, 0.0, "flip"), (1, 0.0, "flip")]
    assert shown[1]["path"] == str(files / "b.gguf")
    assert engine.client.post("/lora-adapters", json=FIRST).json() == {"success": True}
    assert [item["scale"] for item in engine.get("/lora-adapters")] == [1.0, 0.0]
    assert tokens(engine) == tokens(engine, []) == first
    assert tokens(engine, OFF) == plain
    assert engine.client.post("/lora-adapters", json=[]).json() == {"success": True}
    assert tokens(engine) == plain


@pytest.mark.parametrize("body", [{"id": 0}, [5], [{"id": 2, "scale": 1}], [{"scale": 1}], [{"id": 0, "scale": "big"}]])
def test_a_wrong_list_is_refused(engine: EngineProcess, body: Any) -> None:
    assert engine.client.post("/lora-adapters", json=body).status_code == 400
    assert engine.client.post("/completion", json={"prompt": "a", "lora": body}).status_code == 400
    assert [item["scale"] for item in engine.get("/lora-adapters")] == [0.0, 0.0]


def test_a_prompt_cached_under_another_list_is_not_reused(engine: EngineProcess) -> None:
    first, plain = tokens(engine, FIRST), tokens(engine, OFF)
    assert ask(engine, FIRST)["timings"]["cache_n"] == 0  # the cells are the plain ones
    again = ask(engine, FIRST)
    assert (again["tokens"], again["timings"]["cache_n"]) == (first, len(PROMPT) - 1)
    other = ask(engine, OFF)
    assert (other["tokens"], other["timings"]["cache_n"]) == (plain, 0)


def test_a_slot_is_not_preferred_for_cells_of_another_list(engine: EngineProcess) -> None:
    engine.client.post("/slots/0?action=erase").raise_for_status()
    ask(engine, FIRST, slot=1)
    ask(engine, OFF, slot=2)
    assert ask(engine, FIRST, slot=-1)["id_slot"] == 1
    assert ask(engine, OFF, slot=-1)["id_slot"] == 2


def test_groups_take_turns_and_give_what_they_give_alone(engine: EngineProcess) -> None:
    alone = {slot: tokens(engine, lora, slot=slot, n=40) for slot, lora in ((1, FIRST), (2, SECOND))}
    endless = tokens(engine, OFF, n=1500)
    engine.set_policy(prefill_order="rotating", rotation_start="after_first")
    before = engine.get("/scheduler")["iteration"]
    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda slot=slot, lora=lora: found.update({slot: tokens(engine, lora, slot=slot, n=40)}))
        for slot, lora in ((1, FIRST), (2, SECOND))
    ]
    with engine.stream(prompt=PROMPT, id_slot=0, lora=OFF, n_predict=1500, ignore_eos=True, cache_prompt=False) as events:
        heard = next(events)["tokens"]
        for thread in threads:
            thread.start()
        engine.wait_until(lambda slots: all(slot["is_processing"] for slot in slots))
        groups = {slot["group"] for slot in engine.get("/scheduler")["slots"]}
        assert groups == {"completion", "completion lora 0:1", "completion lora 1:1"}
        for thread in threads:
            thread.join(60)
        assert engine.get("/slots")[0]["is_processing"], "the others had to wait for the endless one"
        heard += [token for event in events for token in event["tokens"]]
    assert found == alone
    assert heard == endless
    iterations = engine.get(f"/scheduler/iterations?after={before}")["iterations"]
    assert iterations
    for iteration in iterations:
        assert len({slot for slot, _ in (*iteration["prompt"], *iteration["gen"])}) == 1, "groups never share a batch"


def test_a_restored_slot_knows_its_list(engine: EngineProcess) -> None:
    first, plain = tokens(engine, FIRST), tokens(engine, OFF)
    for name, lora in (("under", FIRST), ("plain", OFF)):
        ask(engine, lora)
        engine.client.post("/slots/0?action=save", json={"filename": name}).raise_for_status()
    for name, expected, other in (("under", FIRST, OFF), ("plain", OFF, FIRST)):
        for lora in (expected, other):
            engine.client.post("/slots/1?action=restore", json={"filename": name}).raise_for_status()
            answer = ask(engine, lora, slot=1)
            assert answer["tokens"] == (first if lora is FIRST else plain)
            assert answer["timings"]["cache_n"] == (len(PROMPT) - 1 if lora is expected else 0)


@pytest.mark.parametrize(
    ("name", "why"),
    [("bad.gguf", "damaged"), ("small.gguf", "damaged"), ("missing.gguf", "no such file"), ("alora.gguf", "activated")],
)
def test_a_file_that_is_no_adapter_ends_the_start_with_a_sentence(files: Path, name: str, why: str) -> None:
    with running_engine("-m", str(files / "small.gguf"), "-c", "512", "--lora", str(files / name), ready=False) as engine:
        assert engine.process.wait(60) == 1
        sentences = [line for line in engine.output().splitlines() if name in line]
        assert len(sentences) == 1
        assert why in sentences[0]
        assert "Traceback" not in engine.output()


def test_scaled_adapters_begin_with_their_scale(files: Path) -> None:
    scaled = f"{files / 'a.gguf'}:0.5"
    with running_engine(
        "-m", str(files / "small.gguf"), "-c", "512", "--lora-scaled", scaled, "--lora", str(files / "b.gguf")
    ) as engine:
        assert [item["scale"] for item in engine.get("/lora-adapters")] == [0.5, 1.0]
