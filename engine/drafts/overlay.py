"""A copy of a GGUF file in memory whose header says one thing more. The file on disk is only read.

llama.cpp takes a draft's rotary sections from its metadata, and its overrides carry no arrays, so the key has to stand in the
file that it opens. That file is anonymous memory (`memfd_create`): header anew, tensor data copied by the kernel. llama.cpp maps
it like any other, and it is gone when the last mapping is. See docs/adr for the alternatives.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from engine.drafts.errors import DraftError
from engine.drafts.metadata import Header, read_open

_COPY_STEP = 1 << 30
_ARRAY, _UINT32 = 9, 4


class Overlay:
    """A file that only this process can open, at `path`, until `close`. What was loaded from it may live on."""

    def __init__(self, path: Path, handles: Sequence[int], folder: Path | None = None) -> None:
        self.path = path
        self._handles = list(handles)
        self._folder = folder

    def close(self) -> None:
        """More than once does no harm."""
        while self._handles:
            os.close(self._handles.pop())
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def open_overlay(path: Path, key: str, numbers: Sequence[int]) -> Overlay:
    """The GGUF file at `path` with `key` set to an array of whole numbers, every other byte of header and data as it is.

    Of a split model, `path` is its first file: llama.cpp finds the others by name, so the overlay lies in a folder of links.
    Raises DraftError with one sentence, and leaves nothing behind.
    """
    if not hasattr(os, "memfd_create"):
        raise DraftError(
            "This system cannot keep a file in memory, so the draft's header cannot be changed: use --draft-rope off."
        )
    with contextlib.ExitStack() as undo:
        try:
            file = undo.enter_context(path.open("rb"))
            header = read_open(file, path)
            handle = os.memfd_create(f"draft-{path.name}"[:200], os.MFD_CLOEXEC)
            undo.callback(os.close, handle)
            _fill(handle, file, header, key, numbers)
            opened = Path(f"/proc/self/fd/{handle}")
            overlay = _among_links(path, header, opened, handle) if header.n_shards > 1 else Overlay(opened, [handle])
        except OSError as error:
            raise DraftError(f"The draft {path} cannot be copied into memory: {error.strerror}.") from error
        undo.pop_all()
        file.close()
        return overlay


def rewritten(header: Header, raw: bytes | memoryview, key: str, numbers: Sequence[int]) -> bytes:
    """The bytes before the first tensor's data, with `key` added, or replaced where it stood.

    `raw` are the file's bytes up to at least the end of its list of tensors. The result's length is a multiple of the alignment;
    places of tensors count from there, so they stay true.
    """
    entry = _entry(key, numbers)
    kept = [raw[span.start : span.end] for name, span in header.spans.items() if name != key]
    counts = struct.pack("<4sIQQ", b"GGUF", header.version, len(header.tensors), len(kept) + 1)
    head = b"".join((counts, *kept, entry, raw[header.infos.start : header.infos.end]))
    return head + bytes(-len(head) % header.alignment)


def _entry(key: str, numbers: Sequence[int]) -> bytes:
    name = key.encode()
    head = struct.pack(f"<Q{len(name)}sIIQ", len(name), name, _ARRAY, _UINT32, len(numbers))
    return head + struct.pack(f"<{len(numbers)}I", *numbers)


def _fill(handle: int, file: BinaryIO, header: Header, key: str, numbers: Sequence[int]) -> None:
    head = rewritten(header, os.pread(file.fileno(), header.infos.end, 0), key, numbers)
    os.truncate(handle, len(head) + max(0, header.size - header.data_start))
    os.pwrite(handle, head, 0)
    os.lseek(handle, len(head), os.SEEK_SET)
    at = header.data_start
    while at < header.size:
        sent = os.sendfile(handle, file.fileno(), at, min(_COPY_STEP, header.size - at))
        if not sent:
            raise DraftError(f"The draft {header.path} became shorter while it was read.")
        at += sent


def _among_links(path: Path, header: Header, opened: Path, handle: int) -> Overlay:
    """A folder with links under the names that llama.cpp looks for: the first to memory, the others to the files as they are."""
    count = header.n_shards
    ending = f"-00001-of-{count:05d}.gguf"
    if not path.name.endswith(ending):
        raise DraftError(f"{path} is the first of {count} files by its header, so its name must end with {ending}.")
    prefix = path.name.removesuffix(ending)
    folder = Path(tempfile.mkdtemp(prefix="slotboard-draft-"))
    try:
        for number in range(2, count + 1):
            name = f"{prefix}-{number:05d}-of-{count:05d}.gguf"
            part = path.absolute().parent / name
            if not part.exists():
                raise DraftError(f"The draft's file {number} of {count}, {path.parent / name}, is not there.")
            (folder / name).symlink_to(part)
        first = folder / path.name
        first.symlink_to(opened)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Overlay(first, [handle], folder)
