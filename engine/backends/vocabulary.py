"""A loaded model's tokens as text and text as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Vocabulary:
    """`texts`: every token's text as one lookup, special tokens' too.

    An answer repeats its whole prompt, and tens of thousands of calls would take the GIL from the loop thread for that long.
    """

    def __init__(self, vocab: Any, n_vocab: int) -> None:
        self._vocab, self._n_vocab = vocab, n_vocab
        self.texts: list[bytes] = [vocab.token_to_bytes(token, 0, True) for token in range(n_vocab)]
        self._pieces: dict[int, bytes] = {}

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens: list[int] = self._vocab.tokenize(text, add_special, parse_special)
        return tokens

    def detokenize(self, tokens: Sequence[int]) -> str:
        """As llama-server does: special tokens show their text, bytes that form no character become U+FFFD."""
        if tokens:
            self._known(min(tokens))
            self._known(max(tokens))
        return b"".join(map(self.texts.__getitem__, tokens)).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """What a generated token adds to its text: nothing for a special one."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._vocab.token_to_bytes(self._known(token))
        return known

    def _known(self, token: int) -> int:
        """Raises ValueError for a token that the model does not have."""
        if 0 <= token < self._n_vocab:
            return token
        raise ValueError(f"token {token} is not in the vocabulary of {self._n_vocab}")
