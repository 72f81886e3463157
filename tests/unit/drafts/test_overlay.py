"""The copy in memory: the file's bytes with one key more, and the file itself as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.drafts import DraftError, DraftInvalid, HeaderError, Outcome, prepare, read_header
from engine.drafts.decide import SECTIONS_KEY
from engine.drafts.overlay import open_overlay
from tests.support.tiny_drafts import write_draft
from tests.unit.drafts import headers as raw

SECTIONS = (16, 0, 0, 0)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def open_files() -> set[str]:
    return {
        os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
    }


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders for links are made in a place of their own, and are gone at the end, as the open files are."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    before = open_files()
    yield
    assert not list(links.iterdir())
    assert open_files() <= before


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return raw.model(tmp_path / "target.gguf", raw.TARGET)


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_draft(tmp_path_factory.mktemp("draft") / "draft.gguf")


def test_all_tensors_and_keys_are_there_and_one_key_more(draft: Path) -> None:
    before = digest(draft)
    overlay = open_overlay(draft, SECTIONS_KEY, SECTIONS)
    plain, changed = gguf.GGUFReader(draft), gguf.GGUFReader(overlay.path)
    assert set(changed.fields) - set(plain.fields) == {SECTIONS_KEY}
    assert changed.fields[SECTIONS_KEY].contents() == list(SECTIONS)
    for name in set(plain.fields) - {"GGUF.kv_count"}:
        assert changed.fields[name].contents() == plain.fields[name].contents(), name
    for ours, theirs in zip(plain.tensors, changed.tensors, strict=True):
        assert ours.name == theirs.name
        assert np.array_equal(ours.data, theirs.data)
    del plain, changed
    overlay.close()
    overlay.close()
    assert not overlay.path.exists()
    assert digest(draft) == before


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_alignment_is_kept(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "aligned.gguf"
    head = raw.header(raw.entry("general.alignment", alignment), raw.entry("a", 1), tensors=(raw.tensor("t", 8, 0),))
    data = bytes(range(32))
    path.write_bytes(head.ljust(-(-len(head) // alignment) * alignment, b"\0") + data)
    overlay = open_overlay(path, SECTIONS_KEY, SECTIONS)
    header = read_header(overlay.path)
    assert header.data_start % alignment == 0
    assert header.values[SECTIONS_KEY] == SECTIONS
    assert overlay.path.read_bytes()[header.data_start :] == data
    overlay.close()


def test_a_key_that_is_there_is_replaced(tmp_path: Path) -> None:
    path = raw.model(tmp_path / "own.gguf", {**raw.DRAFT, SECTIONS_KEY: [11, 11, 10, 0], "last": "x"})
    overlay = open_overlay(path, SECTIONS_KEY, SECTIONS)
    values = read_header(overlay.path).values
    assert values[SECTIONS_KEY] == SECTIONS
    assert values["last"] == "x"
    assert len(values) == len(raw.DRAFT) + 2
    overlay.close()


def test_of_a_split_model_the_first_file_is_in_memory_and_the_others_are_links(tmp_path: Path) -> None:
    first = write_draft(tmp_path / "split.gguf", shards=3)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    before = [digest(part) for part in parts]
    overlay = open_overlay(first, SECTIONS_KEY, SECTIONS)
    assert overlay.path.name == first.name
    seen = sorted(overlay.path.parent.iterdir())
    assert [entry.name for entry in seen] == [part.name for part in parts]
    assert all(entry.is_symlink() for entry in seen)
    assert [entry.resolve() for entry in seen[1:]] == parts[1:]
    assert read_header(seen[0]).values[SECTIONS_KEY] == SECTIONS
    overlay.close()
    assert [digest(part) for part in parts] == before


def test_a_split_model_that_is_not_whole(tmp_path: Path) -> None:
    first = write_draft(tmp_path / "split.gguf", shards=3)
    (tmp_path / "split-00002-of-00003.gguf").unlink()
    with pytest.raises(DraftError, match=r"file 2 of 3, .*split-00002-of-00003.gguf, is not there"):
        open_overlay(first, SECTIONS_KEY, SECTIONS)
    renamed = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(DraftError, match=r"its name must end with -00001-of-00003\.gguf"):
        open_overlay(renamed, SECTIONS_KEY, SECTIONS)


def test_a_file_cut_short_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(raw.header(tensors=(raw.tensor("t", 8, 0),)))
    with pytest.raises(HeaderError, match="ends before the data of its 1 tensors"):
        open_overlay(path, SECTIONS_KEY, SECTIONS)


def test_no_memory_file_is_one_sentence(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(name: str, flags: int = 0) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("os.memfd_create", full)
    with pytest.raises(DraftError, match="cannot be copied into memory: Cannot allocate memory"):
        open_overlay(draft, SECTIONS_KEY, SECTIONS)
    monkeypatch.delattr("os.memfd_create")
    with pytest.raises(DraftError, match="use --draft-rope off"):
        open_overlay(draft, SECTIONS_KEY, SECTIONS)


def test_prepare_gives_the_overlay_where_the_rule_says_so(target: Path, draft: Path) -> None:
    with prepare(target, draft) as prepared:
        assert prepared.path != draft
        assert prepared.draft == draft
        assert read_header(prepared.path).values[SECTIONS_KEY] == prepared.decision.sections == SECTIONS
    assert not prepared.path.exists()


def test_prepare_gives_the_file_itself_otherwise(target: Path, draft: Path) -> None:
    with prepare(target, draft, "off") as prepared:
        assert prepared.path == draft
        assert prepared.decision.outcome is Outcome.NOT_APPLICABLE
    assert draft.exists()


def test_prepare_refuses_an_invalid_draft(target: Path, tmp_path: Path) -> None:
    odd = raw.model(tmp_path / "odd.gguf", {**raw.DRAFT, "dflash.rope.dimension_count": 63})
    with pytest.raises(DraftInvalid, match=r"dflash\.rope\.dimension_count is 63"):
        prepare(target, odd)
