"""Model files over HTTP: what is listed, what is checked, and that nothing else can be named. And the flags behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.backends.base import DraftInfo
from engine.options import parse_options
from tests.unit.drafts import headers as raw
from tests.unit.engine.harness import FLAGS, Served, served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    raw.model(path / "target.gguf", raw.TARGET)
    raw.model(path / "draft.gguf", raw.DRAFT)
    raw.model(path / "odd.gguf", {**raw.DRAFT, "dflash.rope.dimension_count": 63})
    (path / "damaged.gguf").write_bytes(b"GGUF")
    raw.model(tmp_path / "outside.gguf", raw.DRAFT)
    return path


async def check(engine: Served, target: Path, draft: Path, **more: str) -> dict[str, Any]:
    response = await engine.client.get("/models/check", params={"target": str(target), "draft": str(draft), **more})
    found: dict[str, Any] = response.json()
    return found


async def test_files_of_the_folders_and_no_others(folder: Path) -> None:
    async with served("--models-dir", str(folder)) as engine:
        found = (await engine.client.get("/models/files")).json()
        assert found["folders"] == [str(folder)]
        assert [file["name"] for file in found["files"]] == ["damaged.gguf", "draft.gguf", "odd.gguf", "target.gguf"]
        assert {file["in_use"] for file in found["files"]} == {None}
        assert (found["complete"], found["draft"]) == (True, None)


async def test_without_folders_only_what_is_in_use(folder: Path) -> None:
    async with served() as engine:
        assert (await engine.client.get("/models/files")).json()["files"] == []
        info = DraftInfo(str(folder / "odd.gguf"), loaded=False, outcome="invalid", text="why")
        backend = engine.runner.backend
        backend.info = replace(backend.info, draft=info, path=str(folder / "target.gguf"))
        found = (await engine.client.get("/models/files")).json()
        assert [(file["name"], file["in_use"]) for file in found["files"]] == [("odd.gguf", "draft"), ("target.gguf", "model")]
        assert (await check(engine, folder / "target.gguf", folder / "odd.gguf"))["outcome"] == "invalid"
        for answer in (
            found,
            (await engine.client.get("/props")).json(),
            (await engine.client.get("/scheduler")).json()["server"],
        ):
            assert answer["draft"] == {
                "path": str(folder / "odd.gguf"),
                "loaded": False,
                "outcome": "invalid",
                "text": "why",
                "sections": None,
                "warnings": [],
            }


async def test_a_pair_is_checked(folder: Path) -> None:
    async with served("--models-dir", str(folder)) as engine:
        found = await check(engine, folder / "target.gguf", folder / "draft.gguf")
        assert (found["outcome"], found["sections"], found["mode"]) == ("inferred", [32, 0, 0, 0], "auto")
        assert found["target"]["sections"] == [11, 11, 10, 0]
        assert {"label": "Architecture", "value": "dflash"} in found["draft"]["found"]
        assert (await check(engine, folder / "target.gguf", folder / "draft.gguf", draft_rope="off"))["reason"] == "switched_off"
        damaged = await check(engine, folder / "target.gguf", folder / "damaged.gguf")
        assert (damaged["outcome"], damaged["target"]) == ("unreadable", None)
        assert "damaged.gguf is damaged" in damaged["text"]


async def test_no_path_but_a_listed_one_is_opened(folder: Path) -> None:
    (folder / "link.gguf").symlink_to(folder.parent / "outside.gguf")
    async with served("--models-dir", str(folder)) as engine:
        for path in (
            folder.parent / "outside.gguf",
            folder / ".." / "outside.gguf",
            folder / "link.gguf",
            folder / "none.gguf",
            Path("/etc/passwd"),
        ):
            refused = await check(engine, folder / "target.gguf", path)
            assert refused["error"]["message"] == 'Query parameter "draft" must be a path that GET /models/files lists.'
            assert (await check(engine, path, folder / "draft.gguf"))["error"]["field"] == "target"
        assert (await check(engine, folder / "target.gguf", folder / "draft.gguf", draft_rope="x"))["error"]["code"] == 400


async def test_keys_hold_here_too(folder: Path) -> None:
    async with served("--models-dir", str(folder), "--api-key", "k") as engine:
        for path in ("/models/files", "/models/check"):
            assert (await engine.client.get(path)).status_code == 401


def test_flags_and_variables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def files(*flags: str, **environ: str) -> Any:
        return parse_options([*FLAGS, *flags], environ).files

    assert files().draft is None
    given = files("-md", "d.gguf", "--draft-rope", "temporal", "--draft-optional", "--models-dir", f"{folder},{folder.parent}")
    assert (given.draft.path, given.draft.rope, given.draft.optional) == (Path("d.gguf"), "temporal", True)
    assert given.folders == (folder, folder.parent)
    variables = {"LLAMA_ARG_SPEC_DRAFT_MODEL": "d.gguf", "DRAFT_ROPE": "off", "DRAFT_OPTIONAL": "1"}
    by_variables = files(**variables, LLAMA_ARG_MODELS_DIR=str(folder)).draft
    assert (by_variables.path, by_variables.rope, by_variables.optional) == (Path("d.gguf"), "off", True)
    assert files("--model-draft", "e.gguf", **variables).draft.path == Path("e.gguf")
    assert files("-md", "d.gguf", DRAFT_OPTIONAL="off").draft.optional is False
    for wrong, said in (
        (["--models-dir", str(folder / "none")], "none is not a folder"),
        (["--draft-rope", "maybe"], "invalid choice: 'maybe'"),
    ):
        with pytest.raises(SystemExit) as ended:
            files(*wrong)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        files(DRAFT_ROPE="maybe")
    assert "'maybe' is not one of auto, off, temporal" in capsys.readouterr().err
