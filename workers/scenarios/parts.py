"""The parts of a stream's form that say how many and when. Pure values, checked when they are made."""

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


class Search(Arrivals):
    """Looks for the highest rate that the server carries.

    Each try is `for_s` of one rate, doubled from `from_rate` until less than `share` of the requests meet the limits, then
    between the two until they are within `precision` of each other, in at most `tries` tries.
    """

    kind: Literal["search"]
    from_rate: Positive
    for_s: Positive
    most_rate: Positive = 10_000.0
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.9
    precision: Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False)] = 0.1
    tries: Annotated[int, Field(ge=2, le=40)] = 10
    spacing: Spacing = "poisson"

    @model_validator(mode="after")
    def _below_the_top(self) -> Self:
        if self.from_rate > self.most_rate:
            raise PydanticCustomError("search", "begins above its most_rate")
        return self


class Trace(Arrivals):
    """Arrivals and sizes of a recorded trace. `playback_speed` 2 is twice as fast: gaps half as long."""

    kind: Literal["trace"]
    file: str
    format: Literal["mooncake", "burstgpt", "azure"]
    playback_speed: Positive = 1.0
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
