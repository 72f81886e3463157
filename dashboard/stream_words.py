"""A scenario's streams in one line each, as a result says what was sent."""

from __future__ import annotations

from dashboard.charts import words
from workers.scenarios.parts import Amount, At, Closed, Constant, Gamma, Poisson, Ramp, Search, Stages, Trace
from workers.scenarios.streams import Stream

LIMITS = (("ttft_s", "TTFT"), ("itl_s", "ITL"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))


def stream_words(stream: Stream) -> str:
    """ "8 requests, one at a time; 200 tokens in, 32 out; slot 1"."""
    parts = [_arrivals(stream), _sizes(stream)]
    if stream.turns > 1:
        parts.append(f"{stream.turns} turns each")
    if stream.slot is not None:
        parts.append(f"slot {stream.slot}")
    if stream.lora:
        parts.append("LoRA " + ", ".join(str(each.id) for each in stream.lora))
    if stream.cancel_after is not None:
        parts.append(f"{stream.cancel_after.share * 100:.3g} % cancelled by their client")
    return "; ".join(part for part in parts if part)


def limit_words(stream: Stream, stretch: float = 1.0) -> str:
    """ "TTFT 2 s, ITL 1 s"; "" without limits. `stretch`: what times were multiplied by."""
    if stream.slo is None:
        return ""
    told = [(name, getattr(stream.slo, field)) for field, name in LIMITS]
    return ", ".join(f"{name} {words.span(limit * stretch)}" for name, limit in told if limit is not None)


def stage_words(stream: Stream, stage: int, stretch: float = 1.0) -> str:
    """What a level of a sweep is: "4 users" or "2.0 requests a second" as they were sent."""
    arrivals = stream.arrivals
    if isinstance(arrivals, Closed) and stage < len(arrivals.levels):
        users = arrivals.levels[stage].concurrency
        return f"{users} user{'s' if users != 1 else ''}"
    if isinstance(arrivals, Stages) and stage < len(arrivals.stages):
        return f"{_rate(arrivals.stages[stage].rate / stretch)} requests/s"
    return f"level {stage + 1}"


def _arrivals(stream: Stream) -> str:
    """Of each kind of arrivals that a scenario can have."""
    if isinstance(stream.arrivals, Trace):
        speed = stream.arrivals.playback_speed
        return f"{stream.arrivals.file}, {speed:g} times as fast" if speed != 1 else stream.arrivals.file
    told = ""
    match stream.arrivals:
        case At(times=times):
            told = f"{len(times)} request{'s' if len(times) != 1 else ''} at set times"
        case Closed(stages=None, concurrency=users, requests=count):
            told = f"{count} requests, {'one' if users == 1 else users} at a time"
        case Closed() as closed:
            told = f"{', '.join(str(level.concurrency) for level in closed.levels)} users one after the other"
        case Constant(rate=rate):
            told = f"{_rate(rate)} requests/s, even"
        case Poisson(rate=rate):
            told = f"{_rate(rate)} requests/s, Poisson"
        case Gamma(rate=rate, cv=cv):
            told = f"{_rate(rate)} requests/s, gamma with cv {cv:g}"
        case Ramp(from_rate=low, to_rate=high):
            told = f"{_rate(low)} to {_rate(high)} requests/s"
        case Search(from_rate=low, share=share):
            told = f"a search from {_rate(low)} requests/s for the highest rate with {share * 100:g} % within their limits"
        case Stages(stages=stages):
            told = f"{', '.join(_rate(stage.rate) for stage in stages)} requests/s one after the other"
    return told


def _rate(rate: float) -> str:
    return f"{rate:.3g}"


def _sizes(stream: Stream) -> str:
    if stream.prompt is None or stream.output is None:
        return ""
    prompt = f"{_amount(stream.prompt.tokens)} tokens in" if stream.prompt.tokens else "texts of files"
    if stream.prompt.warm is not None:
        prompt += f" on {words.whole(stream.prompt.warm.tokens)} warm"
    if stream.prompt.prefix is not None:
        prompt += f" behind {words.whole(stream.prompt.prefix.tokens)} shared"
    return f"{prompt}, {_amount(stream.output)} out"


def _amount(amount: Amount) -> str:
    if amount.range is not None:
        return f"{words.whole(amount.range.min)} to {words.whole(amount.range.max)}"
    if amount.lognormal is not None:
        return f"about {words.whole(amount.lognormal.median)}"
    return words.whole(amount.fixed or 0)
