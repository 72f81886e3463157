"""Reading headers: what is kept, what is skipped, and that no header can do harm."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from engine.drafts import HeaderError, ModelFacts, facts_of, metadata, read_header
from engine.drafts.metadata import MAX_KEYS, MAX_TENSORS, MAX_TEXTS, Skipped
from tests.unit.drafts import headers as raw


def facts(path: Path, **changes: Any) -> ModelFacts:
    values: dict[str, Any] = {**raw.DRAFT, **{f"dflash.{key.replace('__', '.')}": value for key, value in changes.items()}}
    return facts_of(read_header(raw.model(path, {key: value for key, value in values.items() if value is not None})))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gguf"


def test_values_and_places(path: Path) -> None:
    values: dict[str, Any] = {"general.architecture": "dflash", "a": 7, "b": 0.5, "c": True, "d": [1, 2, 3, 4], "e": ["x", "yy"]}
    entries = [raw.entry(key, value) for key, value in values.items()]
    path.write_bytes(raw.header(*entries, tensors=(raw.tensor("t", 4, 0),)).ljust(512, b"\0"))
    header = read_header(path)
    assert dict(header.values) == {**values, "d": (1, 2, 3, 4), "e": Skipped("array of texts", 2)}
    whole = path.read_bytes()
    assert [whole[span.start : span.end] for span in header.spans.values()] == entries
    assert header.tensors == ("t",)
    assert header.data_start % 32 == 0
    assert header.n_shards == 1


def test_long_values_are_not_kept(path: Path) -> None:
    raw.model(path, {"general.architecture": "x", "long": "y" * 5000, "many": list(range(5000))})
    values = read_header(path).values
    assert values["long"] == Skipped("text", 5000)
    assert values["many"] == Skipped("array of numbers", 5000)


def test_tensor_data_is_not_read(path: Path) -> None:
    """A file of a terabyte, most of which does not exist."""
    path.write_bytes(raw.header(raw.entry("general.architecture", "x"), tensors=(raw.tensor("t", 1 << 38, 0),)))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    began = time.process_time()
    assert read_header(path).size == 1 << 40
    assert time.process_time() - began < 1


def test_defaults_are_llama_cpps(path: Path) -> None:
    """A head is a share of the embedding, all of it rotates, the base is 10000."""
    found = facts(path, rope__dimension_count=None)
    assert (found.full.n_rot, found.full.head, found.freq_base) == (64, 64, 10000.0)
    assert found.full.n_rot_key == "dflash.attention.key_length"
    assert facts(path, attention__head_count=[8, 4], rope__dimension_count=None).full.head == 32


def test_key_length_comes_before_the_share(path: Path) -> None:
    found = facts(path, attention__key_length=96)
    assert (found.full.n_rot, found.full.head) == (64, 96)


@pytest.mark.parametrize(
    ("changes", "slides"),
    [
        ({}, False),
        ({"attention__sliding_window": 0, "attention__sliding_window_pattern": [1, 0]}, False),
        ({"attention__sliding_window": 512, "attention__sliding_window_pattern": [1, 0]}, True),
        ({"attention__sliding_window": 512, "attention__sliding_window_pattern": [0, 1]}, False),
        ({"attention__sliding_window": 512}, None),
        ({"attention__sliding_window": 512, "attention__sliding_window_pattern": 5}, True),
        ({"attention__sliding_window": 512, "attention__sliding_window_pattern": 1}, False),
        ({"attention__sliding_window": 512, "hyper_connection__count": 4}, True),
    ],
)
def test_whether_layer_0_slides(path: Path, changes: dict[str, object], slides: bool | None) -> None:
    sizes = {"rope__dimension_count_swa": 48, "attention__key_length_swa": 56}
    found = facts(path, **sizes, **changes)
    assert found.first_slides is slides
    assert (found.first.n_rot, found.first.head) == ((48, 56) if slides else (64, 64))


@pytest.mark.parametrize(
    ("sections", "four"),
    [([32], (32, 0, 0, 0)), ([11, 11, 10, 0], (11, 11, 10, 0)), (8, (8, 8, 8, 8)), ([0, 0, 0, 0], (0, 0, 0, 0))],
)
def test_sections_are_four_numbers(path: Path, sections: object, four: tuple[int, ...]) -> None:
    assert facts(path, rope__dimension_sections=sections).sections == four


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rope__dimension_count": "many"}, "key dflash.rope.dimension_count is 'many', not a whole number"),
        ({"rope__dimension_count": 1 << 31}, "key dflash.rope.dimension_count is 2147483648, not a whole number"),
        ({"rope__freq_base": "high"}, "key dflash.rope.freq_base is 'high', not a number"),
        ({"rope__freq_base": float("nan")}, "key dflash.rope.freq_base is nan, not a number"),
        ({"rope__dimension_sections": ["a"]}, "key dflash.rope.dimension_sections is array of texts of 1, not an array"),
    ],
)
def test_a_wrong_value_is_told_by_its_key(path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(HeaderError, match="cannot be used") as caught:
        facts(path, **changes)
    assert said in str(caught.value)


def test_a_file_without_an_architecture(path: Path) -> None:
    with pytest.raises(HeaderError, match=r"key general\.architecture is missing"):
        facts_of(read_header(raw.model(path, {"a": 1})))


COUNT = struct.Struct("<IQ")
HOSTILE = {
    "empty": (b"", "is empty"),
    "other": (b"PK\3\4" + bytes(40), "does not begin with the letters GGUF"),
    "short": (b"GGUF\3", "it ends before the version"),
    "version-1": (raw.header(version=1), "its version is 1"),
    "big-endian": (raw.header(version=3 << 24), "big-endian"),
    "keys": (raw.header(n_keys=1 << 60), f"more than {MAX_KEYS}"),
    "keys-missing": (raw.header(n_keys=5), "ends before the length of name of key 1 of 5"),
    "tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 0), f"more than {MAX_TENSORS}"),
    "long-name": (raw.header(struct.pack("<Q", 1 << 63) + b"abc"), "claims 9223372036854775808 bytes"),
    "long-text": (raw.header(raw.pair("k", raw.TEXT, struct.pack("<Q", 1 << 40))), "key k claims 1099511627776 bytes"),
    "type": (raw.header(raw.pair("k", 99, b"")), "key k has type 99"),
    "cut": (raw.header(raw.pair("k", raw.U64, b"\0\0")), "it ends before the key k"),
    "items": (raw.header(raw.pair("k", raw.ARRAY, COUNT.pack(raw.U32, 1 << 61))), "key k claims 2305843009213693952 items"),
    "texts": (raw.header(raw.pair("k", raw.ARRAY, COUNT.pack(raw.TEXT, 1 << 60))), "key k claims 1152921504606846976 texts"),
    "texts-cut": (
        raw.header(raw.pair("k", raw.ARRAY, COUNT.pack(raw.TEXT, 2) + struct.pack("<Q", 1 << 50) + bytes(20))),
        "key k goes on beyond the end",
    ),
    "nested": (raw.header(raw.pair("k", raw.ARRAY, COUNT.pack(raw.ARRAY, 1) + bytes(40))), "key k is an array of type 9"),
    "twice": (raw.header(raw.entry("k", 1), raw.entry("k", 2)), "key k is there twice"),
    "alignment-0": (raw.header(raw.entry("general.alignment", 0)), "key general.alignment is 0"),
    "alignment-24": (raw.header(raw.entry("general.alignment", 24)), "key general.alignment is 24"),
    "alignment-huge": (raw.header(raw.entry("general.alignment", 1 << 31)), "key general.alignment is 2147483648"),
    "dimensions": (raw.header(tensors=(raw.text("t") + struct.pack("<I", 9),)), "tensor t has 9 dimensions"),
    "tensor-cut": (raw.header(tensors=(raw.text("t") + struct.pack("<I", 2),)), "tensor t claims its description"),
    "second-shard": (raw.header(raw.entry("split.no", 1)), "give the first, whose name has 00001"),
    "split-count": (raw.header(raw.entry("split.count", "two")), "key split.count is 'two'"),
}


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_damaged_header_is_one_sentence(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(HeaderError) as caught:
        read_header(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_texts_without_end_are_bounded(path: Path) -> None:
    """In a file of a terabyte of zeros an array may claim any number of empty texts."""
    path.write_bytes(raw.header(raw.pair("k", raw.ARRAY, COUNT.pack(raw.TEXT, 1 << 36))))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(HeaderError, match=f"may have {MAX_TEXTS}"):
        read_header(path)


def test_a_header_without_end_is_bounded(path: Path) -> None:
    path.write_bytes(raw.header(raw.pair("k", raw.TEXT, struct.pack("<Q", 1 << 35)), raw.entry("after", 1)))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(HeaderError, match="goes on beyond 1024 MiB"):
        read_header(path)


def test_a_file_that_becomes_shorter_meanwhile_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw.model(path, {**raw.DRAFT, "general.name": "x" * 100})
    monkeypatch.setattr(metadata, "WINDOW", 16)
    whole = dict(read_header(path).values)
    assert whole["general.name"] == "x" * 100
    pread = os.pread

    def cut(handle: int, count: int, at: int) -> bytes:
        path.write_bytes(path.read_bytes()[:60]) if at > 30 else None
        return pread(handle, count, at)

    monkeypatch.setattr("os.pread", cut)
    with pytest.raises(HeaderError, match="became shorter"):
        read_header(path)


def test_windows_of_any_size_give_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw.model(path, {**raw.DRAFT, "names": ["", "a", "b" * 50, "cc"], "n": [1, 2, 3], "after": "z"})
    expected = read_header(path)
    for window in (1, 7, 8, 9, 64):
        monkeypatch.setattr(metadata, "WINDOW", window)
        assert read_header(path) == expected


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(HeaderError, match="cannot be read: No such file"):
        read_header(path)
    with pytest.raises(HeaderError, match="cannot be read: Is a directory"):
        read_header(path.parent)


def test_damage_anywhere_is_an_error_or_harmless(path: Path) -> None:
    """Bytes changed at random: nothing but HeaderError comes out."""
    entries = [raw.entry(key, value) for key, value in {**raw.DRAFT, "names": ["a", "bb"]}.items()]
    whole = raw.header(*entries, tensors=(raw.tensor("t", 4, 0),)).ljust(1024, b"\0")
    draw = random.Random(3)
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(whole) - 500)] = draw.randrange(256)
        path.write_bytes(damaged[: draw.choice((len(whole), draw.randrange(1, len(whole))))])
        with contextlib.suppress(HeaderError):
            facts_of(read_header(path))
