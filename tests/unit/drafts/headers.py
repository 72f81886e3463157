"""GGUF headers byte by byte, right ones and wrong ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

type Raw = bytes
type Given = int | float | bool | str | list[int] | list[str]

U32, F32, BOOL, TEXT, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> Raw:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, raw: Raw) -> Raw:
    return text(key) + struct.pack("<I", kind) + raw


def entry(key: str, value: Given) -> Raw:
    match value:
        case bool():
            return pair(key, BOOL, struct.pack("<?", value))
        case int():
            return pair(key, U32, struct.pack("<I", value))
        case float():
            return pair(key, F32, struct.pack("<f", value))
        case str():
            return pair(key, TEXT, text(value))
        case list():
            texts = [item for item in value if isinstance(item, str)]
            if texts:
                return pair(key, ARRAY, struct.pack("<IQ", TEXT, len(texts)) + b"".join(map(text, texts)))
            return pair(key, ARRAY, struct.pack(f"<IQ{len(value)}I", U32, len(value), *map(int, value)))


def tensor(name: str, size: int, place: int) -> Raw:
    return text(name) + struct.pack("<IQIQ", 1, size, 0, place)


def header(*entries: Raw, tensors: tuple[Raw, ...] = (), version: int = 3, n_keys: int | None = None) -> Raw:
    counts = struct.pack("<IQQ", version, len(tensors), len(entries) if n_keys is None else n_keys)
    return b"GGUF" + counts + b"".join(entries) + b"".join(tensors)


def model(path: Path, values: Mapping[str, Given]) -> Path:
    """A file without tensors."""
    path.write_bytes(header(*(entry(key, value) for key, value in values.items())))
    return path


DRAFT: dict[str, Given] = {
    "general.architecture": "dflash",
    "dflash.block_count": 2,
    "dflash.embedding_length": 256,
    "dflash.attention.head_count": 4,
    "dflash.rope.dimension_count": 64,
}
TARGET: dict[str, Given] = {
    "general.architecture": "qwen35",
    "qwen35.block_count": 4,
    "qwen35.attention.key_length": 64,
    "qwen35.rope.dimension_count": 64,
    "qwen35.rope.dimension_sections": [11, 11, 10, 0],
}
