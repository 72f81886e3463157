"""Probabilities of tokens in the shapes that clients expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.backends.base import Backend
from engine.delivery import Handle
from engine.scheduler.plan import TokenProbs


class Logprobs:
    """Turns what a backend found into JSON; the text of a special token is what it stands for.

    `post`: probabilities after sampling, under `prob` and `top_probs`; else logarithms under `logprob` and `top_logprobs`.
    """

    def __init__(self, backend: Backend, *, post: bool = False) -> None:
        self._backend = backend
        self._value, self._top = ("prob", "top_probs") if post else ("logprob", "top_logprobs")

    def of_text(self, found: Sequence[TokenProbs], text: str, handle: Handle) -> Sequence[TokenProbs]:
        """Without the tokens of a stop string that ended the task: those of the text that is shown."""
        if not handle.text.stopped_by:
            return found
        left, n = len(text.encode()), 0
        while left > 0 and n < len(found):
            left -= len(self._backend.piece(found[n].token))
            n += 1
        return found[:n]

    def native(self, found: Sequence[TokenProbs]) -> list[dict[str, Any]]:
        """`completion_probabilities`, which is also what OpenAI's chat calls `content`."""
        return [
            {
                **self._token(entry.token, entry.logprob),
                self._top: [self._token(token, logprob) for token, logprob in entry.top],
            }
            for entry in found
        ]

    def chat(self, found: Sequence[TokenProbs]) -> dict[str, Any]:
        return {"content": self.native(found)}

    def completion(self, found: Sequence[TokenProbs]) -> dict[str, Any]:
        """llama-server's `content`, and the parallel lists that OpenAI's completions have."""
        content = self.native(found)
        return {
            "content": content,
            "tokens": [entry["token"] for entry in content],
            f"token_{self._value}s": [entry[self._value] for entry in content],
            self._top: [{top["token"]: top[self._value] for top in entry[self._top]} for entry in content],
        }

    def _token(self, token: int, value: float) -> dict[str, Any]:
        piece = self._backend.piece(token) or self._backend.detokenize([token]).encode()
        return {"id": token, "token": piece.decode("utf-8", "replace"), "bytes": list(piece), self._value: value}
