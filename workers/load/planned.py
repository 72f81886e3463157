"""The values that a plan is made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.scenarios.streams import Slo

LEAST_PROMPT, LEAST_OUTPUT = 16, 4  # what scaling down leaves, unless the scenario itself asks for less


@dataclass(frozen=True, slots=True)
class Scaling:
    """Factors of all sizes and of all times.

    A load weighs alike on two servers when tokens / (time * speed) is the same, so `fitted` stretches the times of a scenario
    that was written for one speed to those of a server with another.
    """

    tokens: float = 1.0
    time: float = 1.0

    @classmethod
    def fitted(cls, tokens: float, written_for: float, measured: float) -> Scaling:
        """`written_for` and `measured` in prompt tokens a second."""
        return cls(tokens, tokens * written_for / measured)

    def prompt(self, tokens: int) -> int:
        return max(min(tokens, LEAST_PROMPT), round(tokens * self.tokens))

    def output(self, tokens: int) -> int:
        return max(min(tokens, LEAST_OUTPUT), round(tokens * self.tokens))


@dataclass(frozen=True, slots=True)
class Piece:
    """`tokens` tokens drawn from `label`: equal labels are equal text, as far as both go."""

    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class AnswerOf:
    """The answer that another request of the plan got, by its number; `tokens` as planned."""

    request: int
    tokens: int


@dataclass(frozen=True, slots=True)
class File:
    """A text, by its place in `Plan.texts`."""

    place: int
    tokens: int = 0  # known once a server has seen it


@dataclass(frozen=True, slots=True)
class Leave:
    """When the client goes away: seconds after sending, or read tokens."""

    seconds: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """One request. `at_s` counts from the load's start; None where it is due `think_s` after the last of `after` has ended."""

    number: int
    stream: str
    at_s: float | None
    pieces: tuple[Piece | AnswerOf | File, ...]
    n_predict: int
    place: int  # within its stream
    after: tuple[int, ...] = ()
    think_s: float = 0.0
    not_after_s: float | None = None
    turn: int = 0
    slot: int | None = None
    lora: tuple[tuple[int, float], ...] = ()
    client: str | None = None
    leave: Leave | None = None
    streamed: bool = True
    stage: int = 0

    @property
    def n_prompt(self) -> int:
        return sum(piece.tokens for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Plan:
    """`warming`: asked one after the other before the load. `open_loop_s`: until the last moment that is known beforehand."""

    requests: tuple[Planned, ...]
    warming: tuple[Planned, ...]
    slos: Mapping[str, Slo] = field(default_factory=dict)
    texts: tuple[str, ...] = ()

    @property
    def open_loop_s(self) -> float:
        return max((each.at_s for each in self.requests if each.at_s is not None), default=0.0)

    @property
    def prompt_tokens(self) -> int:
        """Of the new text of all requests; what a cache may hold of it is not subtracted."""
        return sum(each.n_prompt for each in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(each.n_predict for each in self.requests)

    @property
    def context_needed(self) -> int:
        """Tokens that a slot must hold for the largest request, with the one that servers keep free."""
        return max(each.n_prompt + each.n_predict for each in (*self.requests, *self.warming)) + 1
