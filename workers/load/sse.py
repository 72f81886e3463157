"""Server-sent events out of a byte stream, whatever way it was cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 16 * 1024 * 1024


class SseError(Exception):
    """The stream is not what it claims to be."""


@dataclass(frozen=True, slots=True)
class Event:
    data: str
    name: str = "message"
    id: str = ""


class SseParser:
    """Feed it chunks; it gives the events that are complete.

    Bytes are decoded a whole line at a time, so a character cut in two never shows. Lines end with LF, CRLF or CR; a CR at the
    end of a chunk may be half of a CRLF, so its LF is dropped when it comes. An event without its blank line never counts:
    `pending` then tells a stream that was cut.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._name = ""
        self._id = ""
        self._after_cr = False
        self._size = 0
        self._first = True

    @property
    def pending(self) -> bool:
        """Something of an unfinished event was read."""
        return bool(self._rest or self._data)

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises SseError on an endless event or on bytes that are not UTF-8."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        text = self._rest + chunk
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise SseError(f"The stream sent more than {MAX_EVENT_BYTES >> 20} MiB without ending an event.")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._finish()
        field, colon, raw = line.partition(b":")
        try:
            value = raw.removeprefix(b" ").decode("utf-8") if colon else ""
        except UnicodeDecodeError as error:
            raise SseError(f"The stream holds bytes that are not UTF-8: {error.reason}.") from None
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"id" and "\0" not in value:
            self._id = value
        return None

    def _finish(self) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        return Event("\n".join(data), name or "message", self._id) if data else None
