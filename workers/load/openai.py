"""How a planned request is said to an OpenAI-compatible server.

| route | prompt | lengths |
| --- | --- | --- |
| `/v1/completions` | token ids | exact, where the server counts as many as it was sent |
| `/v1/chat/completions` | plain words, in a conversation with the server's own answers | near; `usage` counts are recorded |
| `/v1/completions` | plain words | the same |

Which of them a server takes, and which optional parameters, is found out before a load (`workers.speaking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Literal

import orjson

from workers.load.planned import AnswerOf, File, Planned
from workers.load.prompts import SAMPLE_TEXT, random_prompt
from workers.load.reading import Answer
from workers.scenarios.streams import LoadScenario

WORDS = tuple(SAMPLE_TEXT.split())
#: Ordinary pieces of every vocabulary that is larger: special tokens and single bytes have the ids before, or the last ones.
IDS = range(1000, 2000)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
#: Parameters that a server may refuse, and what is lost without them; "" where nothing is.
OPTIONAL = {
    "ignore_eos": "answers may end before the planned number of tokens",
    "stream_options": "generated tokens are counted by events where the server does not say how many there were",
    "temperature": "answers are drawn at random",
    "user": "",
    "max_tokens": "",
}


@dataclass(frozen=True, slots=True)
class Manner:
    """What one server was found to take. `refused`: names of OPTIONAL. `tokens_a_word`: of a prompt's plain words.

    `counted`: it says how many tokens a prompt has.
    """

    path: str = CHAT
    prompt: Literal["text", "ids"] = "text"
    refused: tuple[str, ...] = ()
    tokens_a_word: float = 1.0
    counted: bool = True

    def without(self, name: str) -> Manner:
        return replace(self, refused=(*self.refused, name))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Manner:
        return cls(**{**given, "refused": tuple(given.get("refused", ()))})


def says_ids(scenario: LoadScenario) -> bool:
    """Whether all of it can be said in token ids: an answer or a file is text, of which no ids are known."""
    return all(stream.turns == 1 and not (stream.prompt and stream.prompt.files) for stream in scenario.streams)


def manners(*, ids: bool) -> tuple[Manner, ...]:
    """In the order in which they are tried. `ids`: whether the load could be said in token ids."""
    first = (Manner(COMPLETIONS, "ids"),) if ids else ()
    return (*first, Manner(CHAT), Manner(COMPLETIONS))


class OpenAi:
    """`texts`: of the scenario's files. `manner` may change between two loads."""

    def __init__(self, seed: int, model: str, texts: Sequence[str] = (), manner: Manner | None = None) -> None:
        self._seed, self._model, self._texts = seed, model, texts
        self.manner = manner or Manner()

    @property
    def path(self) -> str:
        return self.manner.path

    def body(self, request: Planned, answers: Mapping[int, Answer]) -> bytes:
        asked: dict[str, Any] = {"model": self._model, **self._prompt(request, answers)}
        refused = self.manner.refused
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        asked |= {limit: request.n_predict, "stream": request.streamed}
        wanted: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}
        if request.streamed:
            wanted["stream_options"] = {"include_usage": True}
        if request.client:
            wanted["user"] = request.client
        return orjson.dumps(asked | {name: value for name, value in wanted.items() if name not in refused})

    def headers(self, request: Planned) -> dict[str, str]:
        return {"X-Client-Label": request.client} if request.client else {}

    def _prompt(self, request: Planned, answers: Mapping[int, Answer]) -> dict[str, Any]:
        if self.manner.prompt == "ids":
            return {"prompt": self._ids(request)}
        messages = self._messages(request, answers)
        if self.path == CHAT:
            return {"messages": messages}
        return {"prompt": "\n".join(message["content"] for message in messages)}

    def _ids(self, request: Planned) -> list[int]:
        """Raises ValueError for a request that holds an answer or a file, of which no ids are known."""
        prompt: list[int] = []
        for piece in request.pieces:
            if isinstance(piece, AnswerOf | File):
                raise ValueError(f"Request {request.number} holds text, of which no token ids are known.")
            prompt += random_prompt(IDS, piece.tokens, f"{self._seed}:{piece.label}")
        return prompt

    def _messages(self, request: Planned, answers: Mapping[int, Answer]) -> list[dict[str, str]]:
        messages: list[dict[str, str]] = []
        words: list[str] = []
        for piece in request.pieces:
            match piece:
                case AnswerOf():
                    messages.append({"role": "user", "content": " ".join(words)})
                    answer = answers.get(piece.request)
                    said = answer.text if answer else ""
                    stand_in = self._words(f"answer:{piece.request}", piece.tokens)
                    messages.append({"role": "assistant", "content": said or " ".join(stand_in)})
                    words = []
                case File():
                    words.append(self._texts[piece.place])
                case _:
                    words += self._words(piece.label, piece.tokens)
        return [*messages, {"role": "user", "content": " ".join(words)}]

    def _words(self, label: str, count: int) -> list[str]:
        return Random(f"{self._seed}:{label}").choices(WORDS, k=max(1, round(count / self.manner.tokens_a_word)))
