"""The header of a GGUF file: its keys with their values, where its parts lie, and nothing of its tensors' data.

A header is what the file claims. Every count and every length is held against the bytes that are there before it is used, so a
damaged or hostile file is an error that names the key, and costs neither memory nor more than a second. Bytes are read, not
mapped: a file that is cut short by somebody else meanwhile would end the process. Layout: the GGUF specification, versions 2 and
3, little endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Never

from engine.drafts.errors import HeaderError

MAGIC = b"GGUF"
ALIGNMENT_KEY = "general.alignment"
SPLIT_COUNT_KEY = "split.count"
SPLIT_NO_KEY = "split.no"

MAX_HEADER = 1 << 30  # bytes; large vocabularies fill some ten million
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 1 << 16
MAX_TEXTS = 1 << 22  # texts in all arrays together; a vocabulary of 262,144 tokens with its merges has a fifth of that
MAX_KEPT_TEXT = 4096  # bytes of a text whose value is kept; templates are longer and of no interest here
MAX_KEPT_ITEMS = 1024  # of an array of numbers
WINDOW = 1 << 20  # bytes read at a time

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that is there and was not kept: a long text, an array of texts, a long array of numbers."""

    what: str
    count: int


Value = Number | str | tuple[Number, ...] | Skipped


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` up to `end` of the file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """`spans` has each key's bytes (name, type and value), `infos` those of the list of tensors, `data_start` the first of data.

    Sizes and places in bytes. `n_shards` is 1 for a file that is not split.
    """

    path: Path
    version: int
    size: int
    values: Mapping[str, Value]
    spans: Mapping[str, Span]
    tensors: tuple[str, ...]
    infos: Span
    alignment: int
    data_start: int
    n_shards: int


def read_header(path: Path) -> Header:
    """Raises HeaderError with one sentence."""
    try:
        with path.open("rb") as file:
            return read_open(file, path)
    except OSError as error:
        raise HeaderError(f"The file {path} cannot be read: {error.strerror}.") from error


def read_open(file: BinaryIO, path: Path) -> Header:
    """The header of an open file; `path` is what errors call it. The file's position does not matter and stays."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise HeaderError(f"The file {path} is empty.")
    return _Reader(file.fileno(), size, path).header()


class _Reader:
    """Goes through the header once; `_at` is the place of its next byte, `_window` a piece of the file from `_begin` on."""

    def __init__(self, handle: int, size: int, path: Path) -> None:
        self._handle, self._size, self._path = handle, size, path
        self._at = 0
        self._begin, self._window = 0, b""
        self._texts_left = MAX_TEXTS

    def header(self) -> Header:
        version, n_tensors, n_keys = self._preamble()
        values: dict[str, Value] = {}
        spans: dict[str, Span] = {}
        for place in range(n_keys):
            start = self._at
            key = self._text(f"name of key {place + 1} of {n_keys}", MAX_NAME)
            if key in values:
                self._fail(f"key {key} is there twice")
            values[key] = self._value(key)
            spans[key] = Span(start, self._at)
        infos_start = self._at
        tensors = tuple(self._tensor(place, n_tensors) for place in range(n_tensors))
        alignment = self._alignment(values)
        data_start = -(-self._at // alignment) * alignment
        if tensors and data_start > self._size:
            self._fail(f"it ends before the data of its {n_tensors} tensors")
        return Header(
            path=self._path,
            version=version,
            size=self._size,
            values=MappingProxyType(values),
            spans=MappingProxyType(spans),
            tensors=tensors,
            infos=Span(infos_start, self._at),
            alignment=alignment,
            data_start=data_start,
            n_shards=self._n_shards(values),
        )

    def _preamble(self) -> tuple[int, int, int]:
        if self._size < len(MAGIC) or self._bytes(len(MAGIC)) != MAGIC:
            raise HeaderError(f"{self._path} is not a GGUF file: it does not begin with the letters GGUF.")
        self._at = len(MAGIC)
        version: int = self._unpack("I", "version")
        if version & 0xFFFF == 0:
            self._fail("it was written for big-endian machines")
        if version not in (2, 3):
            self._fail(f"its version is {version}, and versions 2 and 3 can be read")
        n_tensors: int = self._unpack("Q", "count of tensors")
        n_keys: int = self._unpack("Q", "count of keys")
        if n_tensors > MAX_TENSORS:
            self._fail(f"it counts {n_tensors} tensors, more than {MAX_TENSORS}")
        if n_keys > MAX_KEYS:
            self._fail(f"it counts {n_keys} keys, more than {MAX_KEYS}")
        return version, n_tensors, n_keys

    def _value(self, key: str) -> Value:
        kind: int = self._unpack("I", f"type of key {key}")
        if kind in _SCALARS:
            return self._number(kind, f"key {key}")
        if kind == _TEXT:
            return self._kept_text(key)
        if kind == _ARRAY:
            return self._array(key)
        return self._fail(f"key {key} has type {kind}, which does not exist")

    def _number(self, kind: int, what: str) -> Number:
        number: Number = self._unpack(_SCALARS[kind], what)
        return number

    def _kept_text(self, key: str) -> Value:
        length = self._length(f"key {key}")
        raw = self._bytes(min(length, MAX_KEPT_TEXT))
        self._at += length
        if length > MAX_KEPT_TEXT:
            return Skipped("text", length)
        return raw.decode("utf-8", "replace")

    def _array(self, key: str) -> Value:
        kind: int = self._unpack("I", f"type of the items of key {key}")
        count: int = self._unpack("Q", f"count of the items of key {key}")
        if kind == _TEXT:
            self._skip_texts(key, count)
            return Skipped("array of texts", count)
        code = _SCALARS.get(kind)
        if code is None:
            self._fail(f"key {key} is an array of type {kind}, which cannot be read")
        width = struct.calcsize(code)
        self._need(count * width, f"key {key}", f"{count} items")
        raw = self._bytes(count * width) if count <= MAX_KEPT_ITEMS else b""
        self._at += count * width
        return struct.unpack(f"<{count}{code}", raw) if raw or not count else Skipped("array of numbers", count)

    def _skip_texts(self, key: str, count: int) -> None:
        self._need(count * _U64.size, f"key {key}", f"{count} texts")
        if count > self._texts_left:
            self._fail(f"key {key} counts {count} texts; all arrays together may have {MAX_TEXTS}")
        self._texts_left -= count
        read, step = _U64.unpack_from, _U64.size
        while count:
            if self._at + step > self._size:
                self._fail(f"key {key} goes on beyond the end of the file")
            self._refill(step)
            window, place, last = self._window, 0, len(self._window) - step
            while count and place <= last:
                place += step + read(window, place)[0]
                count -= 1
            self._at += place
        if self._at > self._size:
            self._fail(f"key {key} goes on beyond the end of the file")

    def _tensor(self, place: int, n_tensors: int) -> str:
        name = self._text(f"name of tensor {place + 1} of {n_tensors}", MAX_NAME)
        n_dims: int = self._unpack("I", f"count of dimensions of tensor {name}")
        if n_dims > 4:
            self._fail(f"tensor {name} has {n_dims} dimensions, more than 4")
        rest = n_dims * _U64.size + struct.calcsize("<IQ")  # sizes, type, place of its data
        self._need(rest, f"tensor {name}", "its description")
        self._at += rest
        return name

    def _alignment(self, values: Mapping[str, Value]) -> int:
        alignment = values.get(ALIGNMENT_KEY, 32)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            self._fail(f"key {ALIGNMENT_KEY} is {alignment!r}, not a power of two")
        return alignment

    def _n_shards(self, values: Mapping[str, Value]) -> int:
        count, number = values.get(SPLIT_COUNT_KEY, 0), values.get(SPLIT_NO_KEY, 0)
        if type(count) is not int or count < 0:
            self._fail(f"key {SPLIT_COUNT_KEY} is {count!r}, not a count of files")
        if number != 0:
            fault = f"is not the first file of a split model ({SPLIT_NO_KEY} is {number!r})"
            raise HeaderError(f"{self._path} {fault}: give the first, whose name has 00001.")
        return max(1, count)

    def _text(self, what: str, limit: int) -> str:
        length = self._length(what)
        if length > limit:
            self._fail(f"the {what} has {length} bytes, more than {limit}")
        raw = self._bytes(length)
        self._at += length
        return raw.decode("utf-8", "replace")

    def _length(self, what: str) -> int:
        length: int = self._unpack("Q", f"length of {what}")
        self._need(length, what, f"{length} bytes")
        return length

    def _unpack(self, code: str, what: str) -> Any:
        width = struct.calcsize(f"<{code}")
        if self._at + width > self._size:
            self._fail(f"it ends before the {what}")
        number = struct.unpack(f"<{code}", self._bytes(width))[0]
        self._at += width
        return number

    def _bytes(self, count: int) -> bytes:
        """The next `count` bytes, which are known to be within the file's size, without going on."""
        place = self._at - self._begin
        if not 0 <= place <= len(self._window) - count:
            self._refill(count)
            place = 0
        return self._window[place : place + count]

    def _refill(self, count: int) -> None:
        if self._at > MAX_HEADER:
            self._fail(f"it goes on beyond {MAX_HEADER >> 20} MiB")
        self._begin, self._window = self._at, os.pread(self._handle, max(count, WINDOW), self._at)
        if len(self._window) < count:
            self._fail("the file became shorter while it was read")

    def _need(self, n_bytes: int, what: str, claim: str) -> None:
        if n_bytes > self._size - self._at:
            self._fail(f"{what} claims {claim}, and {self._size - self._at} bytes are left")

    def _fail(self, fault: str) -> Never:
        raise HeaderError(f"The header of {self._path} is damaged: {fault}.")
