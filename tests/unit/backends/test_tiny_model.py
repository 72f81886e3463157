from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from engine import tiny_model
from engine.tiny_model import NAME, OLDER, ORDINARY_TOKENS, SHAPE, Shape, ensure_tiny_model, make_tensors, write_model
from engine.tiny_tokenizer import FIRST_ORDINARY, SPACE, SPECIALS, PieceType, build_vocabulary

SMALL = Shape(embd=64, head=16, ff=32, vocab=2048)


def test_vocabulary_is_unique_and_typed() -> None:
    vocabulary = build_vocabulary(SHAPE.vocab)
    assert len(set(vocabulary.pieces)) == SHAPE.vocab == len(vocabulary.scores) == len(vocabulary.types)
    assert vocabulary.types.count(PieceType.BYTE) == 256
    assert {vocabulary.types[token] for token in ORDINARY_TOKENS} == {PieceType.NORMAL}
    assert vocabulary.types.count(PieceType.CONTROL) == len(SPECIALS) - 1


def test_every_piece_can_be_merged_from_its_beginning() -> None:
    ordinary = set(build_vocabulary(SHAPE.vocab).pieces[FIRST_ORDINARY:])
    assert all(len(piece) == 1 or piece[:-1] in ordinary for piece in ordinary)
    assert all(SPACE not in piece[1:] and piece.replace(SPACE, " ").isprintable() for piece in ordinary)


def test_a_vocabulary_too_large_to_make_is_refused() -> None:
    with pytest.raises(ValueError, match="were asked for"):
        build_vocabulary(10_000_000)


def test_specials_and_bytes_have_no_logits() -> None:
    output = make_tensors(SMALL)["output.weight"]
    assert not output[:FIRST_ORDINARY].any()
    assert output[FIRST_ORDINARY:].any(axis=1).all()


def test_state_is_made_of_signs_and_one_empty_part() -> None:
    tensors = make_tensors(SMALL)
    embedding = tensors["token_embd.weight"]
    assert set(np.unique(np.abs(embedding[:, :-16]))) == {1}
    assert not embedding[:, -16:].any()
    assert not tensors["blk.0.attn_q.weight"][:, -16:].any()
    assert (np.abs(tensors["blk.0.attn_v.weight"]).sum(axis=1) == 1).all()


def test_same_bytes_at_every_write(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path / name, SMALL)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_file_is_kept_once_made(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"kept")
    assert ensure_tiny_model(path) == path
    assert path.read_bytes() == b"kept"


def test_file_of_an_older_version_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_model, "SHAPE", SMALL)
    path = tmp_path / "tiny.gguf"
    write_model(path, SMALL)
    path.write_bytes(path.read_bytes().replace(NAME, OLDER[-1]))
    ensure_tiny_model(path)
    write_model(tmp_path / "new.gguf", SMALL)
    assert path.read_bytes() == (tmp_path / "new.gguf").read_bytes()


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, shape: Shape) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(tiny_model, "write_model", fail)
    with pytest.raises(OSError, match="disk full"):
        ensure_tiny_model(tmp_path / "models" / "tiny.gguf")
    assert list((tmp_path / "models").iterdir()) == []


def test_two_makers_at_once_leave_one_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_model, "SHAPE", SMALL)
    path = tmp_path / "tiny.gguf"
    makers = [threading.Thread(target=ensure_tiny_model, args=(path,)) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    write_model(tmp_path / "whole.gguf", SMALL)
    assert path.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tiny.gguf", "whole.gguf"]
