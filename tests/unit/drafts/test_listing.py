"""What is listed of folders, and that nothing outside of them is."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.drafts import listing
from engine.drafts.listing import list_models


def put(path: Path, size: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def names(folder: Path) -> list[str]:
    return [file.name for file in list_models([folder]).files]


def test_files_below_a_folder_by_name(folder: Path) -> None:
    for name in ("b.gguf", "a.gguf", "sub/c.gguf", "readme.md", ".hidden.gguf", ".git/d.gguf"):
        put(folder / name)
    assert names(folder) == ["a.gguf", "b.gguf", "sub/c.gguf"]
    assert list_models([folder]).files[0].size_bytes == 3


def test_a_split_model_is_one(folder: Path) -> None:
    for number in (1, 2, 3):
        put(folder / f"m-{number:05d}-of-00003.gguf", number)
    (file,) = list_models([folder]).files
    assert (file.name, file.n_files, file.size_bytes) == ("m-00001-of-00003.gguf", 3, 6)
    assert listing.one_model(folder / file.name) == file
    assert listing.one_model(folder / "none.gguf") is None


def test_a_link_counts_only_within_the_folders(tmp_path: Path, folder: Path) -> None:
    secret = put(tmp_path / "secret.gguf")
    put(folder / "blobs" / "abc")
    (folder / "out.gguf").symlink_to(secret)
    (folder / "in.gguf").symlink_to(folder / "blobs" / "abc")
    (folder / "gone.gguf").symlink_to(folder / "nothing")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder)
    (folder / "folder.gguf").mkdir()
    assert names(folder) == ["in.gguf"]


def test_folders_that_are_gone_are_empty(tmp_path: Path) -> None:
    assert list_models([tmp_path / "none"]) == listing.Listing((), complete=True)


def test_limits_cut_it_short_and_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        put(folder / f"{number}.gguf")
    monkeypatch.setattr(listing, "MAX_FILES", 4)
    assert (len(names(folder)), list_models([folder]).complete) == (4, False)
    monkeypatch.setattr(listing, "MAX_FILES", 100)
    monkeypatch.setattr(listing, "MAX_ENTRIES", 3)
    assert list_models([folder]).complete is False
    monkeypatch.setattr(listing, "MAX_DEPTH", 2)
    put(folder / "a" / "b" / "deep.gguf")
    monkeypatch.setattr(listing, "MAX_ENTRIES", 100)
    assert "a/b/deep.gguf" not in names(folder)
