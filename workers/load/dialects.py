"""How a planned request is said to a kind of server, and what that kind cannot do.

| dialect | route | prompt | can |
| --- | --- | --- | --- |
| native | `/completion` of the engine and of llama-server | token ids, so sizes are exact | slots, adapters; the engine: labels |
| `workers.load.openai` | `/v1` of any OpenAI-compatible server | token ids or plain words | |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from workers.load.openai import says_ids
from workers.load.planned import AnswerOf, File, Plan, Planned
from workers.load.prompts import random_prompt
from workers.load.reading import Answer
from workers.scenarios.streams import LoadScenario


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a target offers. `adapters`, `n_slots`, `n_ctx`: None where nothing is known; `token_ids`: None until it was tried.

    `cache`: it can be told what to keep of a prompt.
    """

    what: str
    token_ids: bool | None
    pins: bool
    labels: bool
    switches: bool
    adapters: int | None = None
    n_slots: int | None = None
    n_ctx: int | None = None
    cache: bool = True


@dataclass(frozen=True, slots=True)
class Lack:
    """`fatal`: the scenario would not be what it says; else it runs, and the sentence is a warning."""

    text: str
    fatal: bool


def lacks(scenario: LoadScenario, plan: Plan, can: Abilities, *, arms_differ: bool) -> list[Lack]:
    """What this target cannot do of what is asked, one sentence each, before anything is sent."""
    found: list[Lack] = []
    if arms_differ and not can.switches:
        text = f"{can.what} cannot switch policies while it runs, so arms that differ cannot be compared there."
        found.append(Lack(f"{text} Arms that change nothing can: as-is,as-is in a shell.", True))
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
    if text := _lengths(can, says_ids(scenario)):
        found.append(Lack(text, False))
    if not can.cache and any(stream.prompt and (stream.prompt.warm or stream.prompt.prefix) for stream in scenario.streams):
        text = f"{can.what} cannot be told what to keep in its cache, so warm and shared text may be computed anew"
        found.append(Lack(f"{text}; the result has what it says was cached.", False))
    if can.n_ctx is not None and can.n_ctx < plan.context_needed:
        holds = "A slot holds" if can.pins else "A request there may have"
        text = f"{holds} {can.n_ctx:,} tokens, and the largest request needs {plan.context_needed:,} at this scale."
        found.append(Lack(f"{text} Choose a smaller scale, or a server with more context.", True))
    if not can.labels and any(stream.client for stream in scenario.streams):
        found.append(Lack(f"{can.what} does not show client labels; the result has them all the same.", False))
    return found


def _lengths(can: Abilities, says_ids: bool) -> str:
    """Why prompts may be of other lengths than planned; "" where they are exact."""
    near = "only about as long as planned; what it counts is recorded"
    if can.token_ids is None and says_ids:
        return (
            f"Whether {can.what[:1].lower()}{can.what[1:]} takes token ids is tried when the run begins; else prompts are {near}."
        )
    return "" if can.token_ids else f"{can.what} takes text, so prompts are {near}."


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


class Dialect(Protocol):
    @property
    def path(self) -> str: ...

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
