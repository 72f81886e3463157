"""From token pieces to text that a client may see: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """The text of one task as it grows.

    A piece may end inside a character: then nothing is released until the character is whole. A released text never holds a
    stop string nor the beginning of one: what could still become a stop string is held back whole until it is decided, as
    llama-server does. Bytes that are no UTF-8 become U+FFFD.
    """

    __slots__ = ("_beginnings", "_decoder", "_held", "_stops", "has_new_line", "stopped_by")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._beginnings = tuple({stop[:size] for stop in self._stops for size in range(1, len(stop))})
        self._decoder: codecs.IncrementalDecoder | None = None
        self._held = ""
        self.has_new_line = False
        self.stopped_by = ""

    @property
    def has_stops(self) -> bool:
        return bool(self._stops)

    def push(self, piece: bytes) -> str | None:
        """The text released by this piece; None while a character is incomplete or what could become a stop string is held back.

        Sets `stopped_by` at a stop string.
        """
        decoder = self._decoder
        if decoder is None:
            try:
                text = piece.decode()
            except UnicodeDecodeError:
                decoder = self._decoder = _new_decoder(errors="replace")
        if decoder is not None:
            text = decoder.decode(piece)
            if decoder.getstate()[0]:
                self._held += text
                return None
            self._decoder = None
        if self._stops or self._held:
            released = self._release(self._held + text)
            if released is None:
                return None
            text = released
        if "\n" in text:
            self.has_new_line = True
        return text

    def finish(self) -> str:
        """What was held back when the task ended without a stop string; an unfinished character becomes U+FFFD."""
        if self.stopped_by:
            return ""
        text = self._held + (self._decoder.decode(b"", final=True) if self._decoder else "")
        self._held, self._decoder = "", None
        if "\n" in text:
            self.has_new_line = True
        return text

    def _release(self, text: str) -> str | None:
        found = [(at, order) for order, stop in enumerate(self._stops) if (at := text.find(stop)) >= 0]
        if found:
            at, order = min(found)
            self.stopped_by = self._stops[order]
            self._held = ""
            return text[:at]
        if text.endswith(self._beginnings):
            self._held = text
            return None
        self._held = ""
        return text
