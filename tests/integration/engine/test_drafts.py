"""A server that was asked for a draft model: it refuses to start with a bad one, or serves without it and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_drafts import write_draft, write_mrope_target

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_mrope_target(folder / "target.gguf")
    write_draft(folder / "draft.gguf")
    write_draft(folder / "odd.gguf", rope__dimension_count=31)
    return folder


def test_an_invalid_draft_ends_the_start_with_one_sentence(folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        engine = EngineProcess(("-m", str(folder / "target.gguf"), "-md", str(folder / "odd.gguf"), "-c", "512"), {}, output)
        assert engine.process.wait(60) == 1
        engine.client.close()
    listening, sentence = (tmp_path / "output").read_text().strip().splitlines()
    assert listening.startswith("Listening on ")
    assert sentence == (
        "The draft cannot be adapted to this target: dflash.rope.dimension_count is 31, an odd number, and rotation takes pairs; "
        "--draft-optional would serve without the draft."
    )


def test_with_draft_optional_it_serves_without_and_says_so(folder: Path) -> None:
    target, odd = str(folder / "target.gguf"), str(folder / "odd.gguf")
    with running_engine("-m", target, "-md", odd, "--draft-optional", "--models-dir", str(folder), "-c", "512") as engine:
        assert engine.complete(prompt="hello", n_predict=4)["tokens_predicted"] == 4
        assert "Serving without the draft model" in engine.output()
        told = [engine.client.get("/props").json()["draft"], engine.client.get("/scheduler").json()["server"]["draft"]]
        assert told[0] == told[1]
        assert (told[0]["loaded"], told[0]["outcome"]) == (False, "invalid")
        listed = engine.client.get("/models/files").json()["files"]
        assert {file["name"]: file["in_use"] for file in listed} == {
            "draft.gguf": None, "odd.gguf": "draft", "target.gguf": "model"
        }  # fmt: skip
        checked = engine.client.get("/models/check", params={"target": target, "draft": str(folder / "draft.gguf")}).json()
        assert (checked["outcome"], checked["sections"]) == ("inferred", [16, 0, 0, 0])
