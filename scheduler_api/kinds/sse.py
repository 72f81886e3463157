"""Server-sent events from bytes, cut wherever the network cut them. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

from dataclasses import dataclass


class EventTooLarge(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str
    id: str


class EventParser:
    """`feed` bytes, get the events that they complete. A comment completes none, but shows that the stream lives."""

    def __init__(self, cap: int = 16 << 20) -> None:
        self._cap = cap
        self._pending = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._name = ""
        self.last_id = ""

    def feed(self, piece: bytes) -> list[Event]:
        """Raises EventTooLarge when one event is larger than the cap."""
        searched = max(0, len(self._pending) - 1)
        self._pending += piece
        if self._size + len(self._pending) > self._cap:
            raise EventTooLarge(f"An event is larger than {self._cap} bytes.")
        if b"\n" not in self._pending[searched:] and b"\r" not in self._pending[searched:]:
            return []
        lines = self._whole_lines()
        return [event for line in lines if (event := self._line(line)) is not None]

    def feed_data(self, piece: bytes) -> list[str] | list[bytes]:
        """As `feed`, the data of the events alone; names and ids are not looked at.

        Whole events of one data line each, which is what inference servers send, are cut out without a look at their lines:
        a load generator reads a hundred thousand of them a second. Raises EventTooLarge.
        """
        if self._pending or self._data or self._name or not piece.endswith(b"\n\n") or b"\r" in piece:
            return [event.data for event in self.feed(piece)]
        found = piece[:-2].split(b"\n\n")
        if (
            len(piece) > self._cap
            or piece.count(b"\n") != 2 * len(found)
            or not all(each.startswith(b"data: ") for each in found)
        ):
            return [event.data for event in self.feed(piece)]
        return [each[6:] for each in found]

    def _whole_lines(self) -> list[bytes]:
        # A carriage return at the very end may be the first half of a line end.
        held = b"\r" if self._pending.endswith(b"\r") else b""
        text = bytes(self._pending[: len(self._pending) - len(held)]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._pending = bytearray(rest + held)
        return lines

    def _line(self, raw: bytes) -> Event | None:
        if not raw:
            return self._finish()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(raw)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _finish(self) -> Event | None:
        event = Event(self._name or "message", "\n".join(self._data), self.last_id) if self._data else None
        self._data, self._name, self._size = [], "", 0
        return event
