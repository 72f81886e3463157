"""The form of a scenario made of streams: who sends what, when, how large. Pure values, checked when they are made.

Times are seconds and sizes tokens, as on the server that the scenario was written for; `workers.load.plan.Scaling` fits them to
another.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

type Spacing = Literal["even", "poisson"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Part(BaseModel):
    """No unknown fields, no guessing of types, nothing that changes later."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given:
                if name not in cls.model_fields:
                    known = ", ".join(cls.model_fields)
                    raise PydanticCustomError(
                        "unknown_field", "is unknown; known here are {known}", {"name": name, "known": known}
                    )
        return given


class Range(Part):
    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise PydanticCustomError("range", "has a max below its min")
        return self


class Lognormal(Part):
    """`median` and the deviation `sigma` of the natural logarithm; draws are cut to `min` and `max`."""

    median: Tokens
    sigma: Annotated[float, Field(ge=0, le=4, allow_inf_nan=False)]
    min: Tokens = 1
    max: Tokens = 10_000_000


class Amount(Part):
    """How many tokens: a whole number, `{range: {min, max}}` or `{lognormal: {median, sigma, min, max}}`."""

    fixed: Tokens | None = None
    range: Range | None = None
    lognormal: Lognormal | None = None

    @model_validator(mode="before")
    @classmethod
    def _number(cls, given: Any) -> Any:
        if isinstance(given, int) and not isinstance(given, bool):
            return {"fixed": given}
        if not isinstance(given, dict | Amount):
            raise PydanticCustomError("amount", "must be a whole number, or one of: range, lognormal")
        return given

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.fixed, self.range, self.lognormal)) != 1:
            raise PydanticCustomError("amount", "must be a whole number, or one of: range, lognormal")
        return self

    @property
    def most(self) -> int:
        return self.fixed or (self.range.max if self.range else self.lognormal.max if self.lognormal else 0)


# -- arrivals ---------------------------------------------------------------------------------------------------------


class Arrivals(Part):
    start_s: NotNegative = 0.0


class At(Arrivals):
    """At these moments."""

    kind: Literal["at"]
    times: Annotated[list[NotNegative], Field(min_length=1, max_length=100_000)]


class ClosedStage(Part):
    concurrency: Annotated[int, Field(ge=1, le=4096)]
    requests: Annotated[int, Field(ge=1, le=1_000_000)]


class Closed(Arrivals):
    """So many users, each of whom sends the next request `think_s` after the last one ended; `stages` follow one another."""

    kind: Literal["closed"]
    concurrency: Annotated[int, Field(ge=1, le=4096)] | None = None
    requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stages: Annotated[list[ClosedStage], Field(min_length=1)] | None = None
    think_s: NotNegative = 0.0
    think_spread: Literal["fixed", "exponential"] = "fixed"
    for_s: Positive | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        single = self.concurrency is not None and self.requests is not None
        if single == (self.stages is not None) or (self.stages and (self.concurrency or self.requests)):
            raise PydanticCustomError("closed", "needs either concurrency and requests, or stages")
        return self

    @property
    def levels(self) -> list[ClosedStage]:
        if self.stages is not None:
            return self.stages
        assert self.concurrency is not None
        assert self.requests is not None
        return [ClosedStage(concurrency=self.concurrency, requests=self.requests)]


class Constant(Arrivals):
    kind: Literal["constant"]
    rate: Positive
    for_s: Positive


class Poisson(Arrivals):
    kind: Literal["poisson"]
    rate: Positive
    for_s: Positive


class Gamma(Arrivals):
    """Gaps of a gamma distribution; `cv` is their deviation over their mean: 1 is Poisson, above it bursts."""

    kind: Literal["gamma"]
    rate: Positive
    for_s: Positive
    cv: Annotated[float, Field(gt=0, le=20, allow_inf_nan=False)] = 1.0


class Ramp(Arrivals):
    kind: Literal["ramp"]
    from_rate: NotNegative
    to_rate: NotNegative
    for_s: Positive
    spacing: Spacing = "poisson"

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.from_rate == self.to_rate == 0:
            raise PydanticCustomError("ramp", "goes from a rate of 0 to a rate of 0")
        return self


class Stage(Part):
    rate: NotNegative
    for_s: Positive


class Stages(Arrivals):
    kind: Literal["stages"]
    stages: Annotated[list[Stage], Field(min_length=1, max_length=1000)]
    spacing: Spacing = "poisson"


class Trace(Arrivals):
    """Arrivals and sizes of a recorded trace. `playback_speed` 2 is twice as fast: gaps half as long."""

    kind: Literal["trace"]
    file: str
    format: Literal["mooncake", "burstgpt", "azure"]
    playback_speed: Positive = 1.0
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


# -- a stream ---------------------------------------------------------------------------------------------------------


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
    arrivals: Annotated[At | Closed | Constant | Poisson | Gamma | Ramp | Stages | Trace, Field(discriminator="kind")]
    prompt: Prompt | None = None
    output: Amount | None = None
    turns: Annotated[int, Field(ge=1, le=1000)] = 1
    turn_think_s: NotNegative = 0.0
    slot: Annotated[int, Field(ge=0, le=4095)] | None = None
    lora: list[Lora] = []
    client: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    cancel_after: Cancel | None = None
    stream: bool = True
    slo: Slo | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        traced = isinstance(self.arrivals, Trace)
        if traced != (self.prompt is None) or traced != (self.output is None):
            raise PydanticCustomError("sizes", "needs prompt and output, unless its arrivals are a trace, which has both")
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

    a: dict[str, Any] = {}
    b: dict[str, Any] = {}


class LoadScenario(Part):
    """`written_for`: prompt tokens a second of the server for which sizes and times were chosen."""

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: str
    summary: str
    written_for: Positive
    scale: Annotated[float, Field(ge=0.005, le=20, allow_inf_nan=False)] | Literal["auto"] = "auto"
    arms: Arms = Arms()
    exclude: Excluded = Excluded()
    streams: Annotated[list[Stream], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _different_names(self) -> Self:
        names = [stream.name for stream in self.streams]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PydanticCustomError("names", "has two streams named {name}", {"name": twice[0]})
        return self

    @property
    def slots_needed(self) -> int:
        return max((stream.slot + 1 for stream in self.streams if stream.slot is not None), default=1)

    @property
    def adapters_needed(self) -> int:
        return max((lora.id + 1 for stream in self.streams for lora in stream.lora), default=0)
