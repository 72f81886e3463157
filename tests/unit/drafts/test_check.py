"""`python -m engine.drafts check`, and the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.drafts.__main__ import main
from tests.unit.drafts import headers as raw

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(raw.model(tmp_path / "target.gguf", raw.TARGET))


def draft(tmp_path: Path, **changes: int | list[int]) -> str:
    values = {**raw.DRAFT, **{f"dflash.{key.replace('__', '.')}": value for key, value in changes.items()}}
    return str(raw.model(tmp_path / "draft.gguf", values))


def test_it_says_what_was_found_what_follows_and_why(tmp_path: Path, target: str, capsys: Capture) -> None:
    assert main(["check", target, draft(tmp_path)]) == 0
    said = capsys.readouterr().out
    for part in (
        "[11, 11, 10, 0] (qwen35.rope.dimension_sections)",
        "64 of a head of 64 (dflash.rope.dimension_count)",
        "one position for each token",
        "Temporal-only sections are added in memory.",
        "Sections: [32, 0, 0, 0]",
        "Next: Give the file with --model-draft",
    ):
        assert part in said


def test_refused_and_unreadable_end_with_1(tmp_path: Path, target: str, capsys: Capture) -> None:
    assert main(["check", target, draft(tmp_path, rope__dimension_count=63)]) == 1
    assert "dflash.rope.dimension_count is 63, an odd number" in capsys.readouterr().out
    assert main(["check", target, str(tmp_path / "none.gguf")]) == 1
    assert "none.gguf cannot be read" in capsys.readouterr().err


def test_json_and_modes(tmp_path: Path, target: str, capsys: Capture) -> None:
    path = draft(tmp_path, rope__dimension_sections=[11, 11, 10, 0])
    assert main(["check", target, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "explicit"
    assert main(["check", target, path, "--json", "--draft-rope", "temporal"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["sections"], found["draft"]["path"]) == ("inferred", [32, 0, 0, 0], path)
    assert main(["check", target, target, "--json", "--draft-rope", "temporal"]) == 1
    assert json.loads(capsys.readouterr().out)["next_step"].startswith("Leave out --draft-rope temporal")


def test_a_wrong_command_ends_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "only-one.gguf"])
    assert ended.value.code == 2
