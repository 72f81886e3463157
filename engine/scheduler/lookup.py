"""What followed the last few tokens earlier in the same text: a draft that costs no model."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 32_768  # tokens of a text that are looked through; twice as many are kept before the older half is dropped
AT_A_TIME = 4096  # tokens put into the index in one go, half a millisecond


class NgramIndex:
    """Where each run of `size` tokens was last followed by another one. A token costs the same however long the text is.

    A long prompt enters the index some thousand tokens at a time, so that no single batch waits for all of it.
    """

    __slots__ = ("_done", "_places", "_size", "_text")

    def __init__(self, size: int, text: Sequence[int]) -> None:
        self._size = size
        self._text = list(text[-WINDOW:])
        self._places: dict[tuple[int, ...], int] = {}
        self._done = size  # place of the first token whose predecessors are not in the index

    def extend(self, tokens: Sequence[int]) -> None:
        self._text += tokens
        if len(self._text) > 2 * WINDOW:
            self.__init__(self._size, self._text)  # type: ignore[misc]

    def propose(self, most: int) -> list[int]:
        """What came after the last occurrence of the text's end, at most so many tokens; empty when it never occurred.

        Where that runs into the end of the text, the text is taken to go on in the same circle.
        """
        self._catch_up()
        text, size = self._text, self._size
        end = len(text)
        place = self._places.get(tuple(text[end - size :])) if end >= size else None
        if place is None:
            return []
        if place + most <= end:
            return text[place : place + most]
        circle = text[place:]
        return (circle * (most // len(circle) + 1))[:most]

    def _catch_up(self) -> None:
        text, size, begin = self._text, self._size, self._done
        end = min(len(text), begin + AT_A_TIME)
        if begin < end:
            grams = zip(*[text[begin - size + k : end - size + k] for k in range(size)], strict=True)
            self._places.update(zip(grams, range(begin, end), strict=True))
            self._done = end
