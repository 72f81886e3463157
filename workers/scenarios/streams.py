"""The form of a scenario made of streams: who sends what, when, how large. Pure values, checked when they are made.

Times are seconds and sizes tokens, as on the server that the scenario was written for; `workers.load.planned.Scaling` fits
them to another.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from workers.scenarios.parts import (
    Amount,
    At,
    Closed,
    Constant,
    Gamma,
    Name,
    NotNegative,
    Part,
    Poisson,
    Positive,
    Ramp,
    Search,
    Share,
    Stages,
    Tokens,
    Trace,
)


class Prefix(Part):
    """The same first tokens for all requests of a group; streams that name the same `name` share them."""

    tokens: Tokens
    groups: Annotated[int, Field(ge=1, le=10_000)] = 1
    name: Name | None = None


class Warm(Part):
    """Tokens that the cache holds before the load begins, in `contexts` different texts."""

    tokens: Tokens
    contexts: Annotated[int, Field(ge=1, le=1024)] = 1


class Prompt(Part):
    """`tokens` new ones, or the texts of `files` in turns, behind what `warm` and `prefix` put first."""

    tokens: Amount | None = None
    files: Annotated[list[str], Field(min_length=1)] | None = None
    prefix: Prefix | None = None
    warm: Warm | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.tokens is None) == (self.files is None):
            raise PydanticCustomError("prompt", "needs either tokens or files")
        return self


class Lora(Part):
    id: Annotated[int, Field(ge=0)]
    scale: Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)] = 1.0


class Cancel(Part):
    """The client leaves after so many seconds or read tokens; only this `share` of the requests."""

    seconds: Positive | None = None
    tokens: Tokens | None = None
    share: Share = 1.0

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.seconds is None) == (self.tokens is None):
            raise PydanticCustomError("cancel", "needs either seconds or tokens")
        return self


class Slo(Part):
    """Limits of one request, in seconds: a request is good when it meets all that are given."""

    ttft_s: Positive | None = None
    itl_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None


class Stream(Part):
    name: Name
    arrivals: Annotated[At | Closed | Constant | Poisson | Gamma | Ramp | Stages | Search | Trace, Field(discriminator="kind")]
    prompt: Prompt | None = None
    output: Amount | None = None
    turns: Annotated[int, Field(ge=1, le=1000)] = 1
    turn_think_s: NotNegative = 0.0
    slot: Annotated[int, Field(ge=0, le=4095)] | None = None
    lora: list[Lora] = Field(default_factory=list)
    client: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    cancel_after: Cancel | None = None
    stream: bool = True
    slo: Slo | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        traced = isinstance(self.arrivals, Trace)
        if traced != (self.prompt is None) or traced != (self.output is None):
            raise PydanticCustomError("sizes", "needs prompt and output, unless its arrivals are a trace, which has both")
        if isinstance(self.arrivals, Search) and (self.slo is None or self.turns > 1):
            raise PydanticCustomError("search", "needs an slo to search by, and single turns")
        if self.turns > 1 and self.prompt is not None and self.prompt.files is not None:
            raise PydanticCustomError("turns", "cannot have several turns over files")
        if self.cancel_after is not None and self.cancel_after.tokens is not None and not self.stream:
            raise PydanticCustomError("cancel", "cannot count tokens of an answer that is not streamed")
        return self


class Edge(Part):
    """Requests that are sent and not counted: the first or last so many, seconds' worth, or a share of each stream."""

    requests: Annotated[int, Field(ge=0)] | None = None
    seconds: NotNegative | None = None
    share: Annotated[float, Field(ge=0, lt=0.5, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.requests, self.seconds, self.share)) != 1:
            raise PydanticCustomError("edge", "needs one of: requests, seconds, share")
        return self


class Excluded(Part):
    """What does not count, of each stream, in the order in which requests are planned."""

    warm_up: Edge | None = None
    cool_down: Edge | None = None


class Arms(Part):
    """Two sets of policy fields worth comparing with this load."""

    a: dict[str, Any] = Field(default_factory=dict)
    b: dict[str, Any] = Field(default_factory=dict)


class Blocks(Part):
    """How the blocks of a run come: their order within the pairs, and how many pairs with arm A on both sides go first."""

    order: Literal["abba", "random"] | None = None
    floor: Annotated[int, Field(ge=0, le=20)] | None = None


class LoadScenario(Part):
    """`written_for`: prompt tokens a second of the server for which sizes and times were chosen."""

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: str
    summary: str
    tags: Annotated[list[Name], Field(max_length=8)] = Field(default_factory=list)
    written_for: Positive
    scale: Annotated[float, Field(ge=0.005, le=20, allow_inf_nan=False)] | Literal["auto"] = "auto"
    arms: Arms = Arms()
    blocks: Blocks = Blocks()
    exclude: Excluded = Excluded()
    streams: Annotated[list[Stream], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _different_names(self) -> Self:
        names = [stream.name for stream in self.streams]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PydanticCustomError("names", "has two streams named {name}", {"name": twice[0]})
        if sum(isinstance(stream.arrivals, Search) for stream in self.streams) > 1:
            raise PydanticCustomError("search", "has two streams that search; one can")
        return self

    @property
    def slots_needed(self) -> int:
        return max((stream.slot + 1 for stream in self.streams if stream.slot is not None), default=1)

    @property
    def adapters_needed(self) -> int:
        return max((lora.id + 1 for stream in self.streams for lora in stream.lora), default=0)
