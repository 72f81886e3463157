"""Probabilities of tokens in the shapes that clients expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.backends.base import Backend
from engine.scheduler.plan import TokenProbs


class Logprobs:
    """Turns what a backend found into JSON; the text of a special token is what it stands for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def native(self, found: Sequence[TokenProbs]) -> list[dict[str, Any]]:
        """`completion_probabilities`, which is also what OpenAI's chat calls `content`."""
        return [
            {
                **self._token(entry.token, entry.logprob),
                "top_logprobs": [self._token(token, logprob) for token, logprob in entry.top],
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
            "token_logprobs": [entry["logprob"] for entry in content],
            "top_logprobs": [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in content],
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        piece = self._backend.piece(token) or self._backend.detokenize([token]).encode()
        return {"id": token, "token": piece.decode("utf-8", "replace"), "bytes": list(piece), "logprob": logprob}
