"""How a planned request is said to a kind of server, and what that kind cannot do.

| dialect | route | prompt | can |
| --- | --- | --- | --- |
| native | `/completion` of the engine and of llama-server | token ids, so sizes are exact | slots, adapters; the engine: labels |
| chat | `/v1/chat/completions` of any OpenAI-compatible server | plain words, so sizes are near; its counts are recorded | |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import orjson

from workers.load.planned import AnswerOf, File, Plan, Planned
from workers.load.prompts import SAMPLE_TEXT, random_prompt
from workers.load.reading import Answer
from workers.scenarios.streams import LoadScenario

WORDS = tuple(SAMPLE_TEXT.split())


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a target offers. `adapters`, `n_slots`, `n_ctx`: None where nothing is known."""

    what: str
    token_ids: bool
    pins: bool
    labels: bool
    switches: bool
    adapters: int | None = None
    n_slots: int | None = None
    n_ctx: int | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """`fatal`: the scenario would not be what it says; else it runs, and the sentence is a warning."""

    text: str
    fatal: bool


def lacks(scenario: LoadScenario, plan: Plan, can: Abilities, *, arms_differ: bool) -> list[Lack]:
    """What this target cannot do of what is asked, one sentence each, before anything is sent."""
    found: list[Lack] = []
    if arms_differ and not can.switches:
        found.append(
            Lack(f"{can.what} cannot switch policies while it runs, so arms that differ cannot be compared there.", True)
        )
    pinned = sorted({stream.slot for stream in scenario.streams if stream.slot is not None})
    if pinned and not can.pins:
        found.append(
            Lack(f"{can.what} takes no slot numbers, so the requests meant for slots {_list(pinned)} go where it likes.", False)
        )
    elif can.n_slots is not None and can.n_slots < scenario.slots_needed:
        found.append(Lack(f"The server has {can.n_slots} slots, and the scenario needs {scenario.slots_needed}.", True))
    if needed := scenario.adapters_needed:
        if can.adapters is None:
            found.append(Lack(f"{can.what} takes no LoRA lists, so all streams run on the plain model.", True))
        elif can.adapters < needed:
            found.append(Lack(f"The server has {can.adapters} LoRA adapters loaded, and the scenario needs {needed}.", True))
    if not can.token_ids:
        found.append(
            Lack(f"{can.what} takes text, so prompts are only about as long as planned; what it counts is recorded.", False)
        )
    if can.n_ctx is not None and can.n_ctx < plan.context_needed:
        text = f"A slot holds {can.n_ctx:,} tokens, and the largest request needs {plan.context_needed:,} at this scale."
        found.append(Lack(f"{text} Choose a smaller scale, or a server with more context.", True))
    if not can.labels and any(stream.client for stream in scenario.streams):
        found.append(Lack(f"{can.what} does not show client labels; the result has them all the same.", False))
    return found


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


class Dialect(Protocol):
    path: str

    def body(self, request: Planned, answers: Mapping[int, Answer]) -> bytes: ...

    def headers(self, request: Planned) -> dict[str, str]: ...


class Native:
    """llama-server's own completion. `pool`: ordinary tokens of the server's vocabulary; `texts`: tokens of each file."""

    path = "/completion"

    def __init__(self, seed: int, pool: Sequence[int], texts: Sequence[Sequence[int]] = ()) -> None:
        self._seed = seed
        self._pool = tuple(pool)
        self._texts = texts

    def body(self, request: Planned, answers: Mapping[int, Answer]) -> bytes:
        asked = {
            "prompt": self._prompt(request, answers),
            "n_predict": request.n_predict,
            "stream": request.streamed,
            "cache_prompt": True,
            "temperature": 0.0,
            "ignore_eos": True,
            "id_slot": -1 if request.slot is None else request.slot,
        }
        if request.lora:
            asked["lora"] = [{"id": number, "scale": scale} for number, scale in request.lora]
        return orjson.dumps(asked)

    def _prompt(self, request: Planned, answers: Mapping[int, Answer]) -> list[int]:
        prompt: list[int] = []
        for piece in request.pieces:
            match piece:
                case AnswerOf():
                    answer = answers.get(piece.request)
                    said = list(answer.tokens) if answer else []
                    prompt += said or random_prompt(self._pool, piece.tokens, f"{self._seed}:answer:{piece.request}")
                case File():
                    prompt += self._texts[piece.place]
                case _:
                    prompt += random_prompt(self._pool, piece.tokens, f"{self._seed}:{piece.label}")
        return prompt

    def headers(self, request: Planned) -> dict[str, str]:
        return {"X-Client-Label": request.client} if request.client else {}


class Chat:
    """Any OpenAI-compatible server. Pieces are common words, as many as `tokens_a_word` says are needed."""

    def __init__(self, seed: int, model: str, texts: Sequence[str] = (), path: str = "/v1/chat/completions") -> None:
        self._seed = seed
        self._model = model
        self._texts = texts
        self.path = path
        self.tokens_a_word = 1.0  # until the server has counted some

    def body(self, request: Planned, answers: Mapping[int, Answer]) -> bytes:
        asked = {
            "model": self._model,
            "messages": self._messages(request, answers),
            "max_tokens": request.n_predict,
            "temperature": 0.0,
            "stream": request.streamed,
        }
        if request.streamed:
            asked["stream_options"] = {"include_usage": True}
        if request.client:
            asked["user"] = request.client
        return orjson.dumps(asked)

    def _messages(self, request: Planned, answers: Mapping[int, Answer]) -> list[dict[str, str]]:
        messages: list[dict[str, str]] = []
        words: list[str] = []
        for piece in request.pieces:
            match piece:
                case AnswerOf():
                    messages.append({"role": "user", "content": " ".join(words)})
                    answer = answers.get(piece.request)
                    said = answer.text if answer else ""
                    messages.append(
                        {"role": "assistant", "content": said or " ".join(self._words(f"answer:{piece.request}", piece.tokens))}
                    )
                    words = []
                case File():
                    words.append(self._texts[piece.place])
                case _:
                    words += self._words(piece.label, piece.tokens)
        return [*messages, {"role": "user", "content": " ".join(words)}]

    def _words(self, label: str, count: int) -> list[str]:
        return Random(f"{self._seed}:{label}").choices(WORDS, k=max(1, round(count / self.tokens_a_word)))

    def headers(self, request: Planned) -> dict[str, str]:
        return {"X-Client-Label": request.client} if request.client else {}
