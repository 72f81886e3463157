"""The measures of a block of which a tally was kept, as `workers.analysis.load` has them of the requests themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workers.analysis.fair import jain
from workers.analysis.load import FEW, MANY, BlockLoad, StageRow
from workers.analysis.naming import CLIENT, Key
from workers.load.histogram import ERROR
from workers.load.tally import RAW_MOST, Part, Tally


def block_load(tally: Tally, limited: Iterable[str], alone: Mapping[str, float] | None = None) -> BlockLoad:
    """As `workers.analysis.load.block_load`; `limited`: the streams that have limits."""
    limited = set(limited)
    streams = {name: tally.of(stream=name) for name in _of(tally, 0)}
    clients = {name: tally.of(client=name) for name in _of(tally, 2) if name}
    values: dict[Key, float | None] = {}
    for stream, part in streams.items():
        good = part.good if stream in limited else None
        values |= {(stream, name): value for name, value in _values(part, good).items()}
    for client, part in clients.items():
        good = _good(tally, client, limited)
        values |= {(f"{CLIENT}{client}", name): value for name, value in _values(part, good).items()}
    whole = tally.of()
    if whole.span:
        values |= {
            ("", "makespan"): whole.span,
            ("", "throughput"): whole.rate(whole.generated),
            ("", "requests"): whole.rate(whole.ok),
        }
    values |= _fairness(streams, clients, whole, alone or {})
    outcomes = {stream: dict(each.outcomes) for stream, each in streams.items()}
    known = {key: value for key, value in values.items() if value is not None}
    return BlockLoad(known, outcomes, {stream: each.ok for stream, each in streams.items()})


def bound_sentence(tallies: Sequence[Tally]) -> str:
    """How exact measures of tallies are, in words; "" of none."""
    if not tallies:
        return ""
    services = [part.service for tally in tallies for part in tally.parts.values()]
    text = (
        f"Of blocks with more than {RAW_MOST:,} requests, percentiles and slowdowns are within {ERROR * 100:g} % of those of "
        "the requests themselves; counts, rates, means, largest values, waits and Jain's indices of tokens are exact."
    )
    if None in services:
        return f"{text} How evenly requests were served was not kept of them."
    resolution_s = max((each.resolution_s for each in services if each is not None), default=0.0)
    text += f" A max service gap is exact from {resolution_s * 1000:.0f} ms on, and told as that where it is shorter."
    if any(each.spans is None for each in services if each is not None):
        text += " Where hardly any requests overlapped it is not known."
    return text


def _of(tally: Tally, place: int) -> list[str]:
    """Streams or clients, in the order in which they first came."""
    return list(dict.fromkeys(str(key[place]) for key in tally.parts))


def _good(tally: Tally, client: str, limited: set[str]) -> int | None:
    """Of a client's requests: those that met their limits, and those that have none and ended well. None without any limits."""
    mine = {key: part for key, part in tally.parts.items() if key[2] == client}
    if not any(stream in limited for stream, _, _ in mine):
        return None
    return sum(part.good if key[0] in limited else part.ok for key, part in mine.items())


def _values(part: Part, good: int | None) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, each in part.times.items():
        found[f"{name}_mean"] = each.mean
        found[f"{name}_p50"] = each.percentile(0.5)
        found[f"{name}_p95"] = each.percentile(0.95) if each.n >= FEW else None
        found[f"{name}_p99"] = each.percentile(0.99) if each.n >= MANY else None
        found[f"{name}_max"] = each.high if each.n > 1 else None
    if good is not None:
        found["goodput"] = part.rate(good)
    if part.ok and part.requests > 1:
        found["throughput"], found["requests"] = part.rate(part.generated), part.rate(part.ok)
    return found


def _fairness(
    streams: Mapping[str, Part], clients: Mapping[str, Part], whole: Part, alone: Mapping[str, float]
) -> dict[Key, float | None]:
    """As `workers.analysis.fair.fairness`."""
    named = {f"{CLIENT}{name}": part for name, part in clients.items()}
    slowdowns = {name: _slowdown(part, alone.get(name)) for name, part in streams.items()}
    found: dict[Key, float | None] = {}
    for who, part in {**streams, **named}.items():
        if part.service is not None:
            found[who, "gap"], found[who, "wait"] = part.service.gap_s, part.service.wait_s
    found |= {(name, "slowdown"): value for name, value in slowdowns.items()}
    found["", "jain_clients"], found["", "jain_streams"] = _jain_of(clients), _jain_of(streams)
    known = [value for value in slowdowns.values() if value is not None]
    found["", "jain_slowdown"] = jain(known) if len(known) == len(streams) else None
    found["", "oldest_wait"] = whole.service.wait_s if whole.service is not None else None
    return found


def _slowdown(part: Part, alone_s: float | None) -> float | None:
    middle = part.times["e2e"].percentile(0.5)
    return middle / alone_s if middle is not None and alone_s else None


def _jain_of(parts: Mapping[str, Part]) -> float | None:
    served = [None if part.service is None else part.service.served for part in parts.values()]
    return None if None in served else jain([float(each) for each in served if each is not None])


def stage_rows(tally: Tally, limited: Iterable[str]) -> list[StageRow]:
    """Levels in their order, for streams that have more than one."""
    limited, found = set(limited), []
    for stream in _of(tally, 0):
        levels = sorted({stage for each, stage, _ in tally.parts if each == stream})
        for stage in levels if len(levels) > 1 else ():
            part = tally.of(stream=stream, stage=stage)
            good = part.good if stream in limited else None
            ttft, e2e = (part.times[name].percentile(0.5) for name in ("ttft", "e2e"))
            found.append(StageRow(stream, stage, part.requests, part.ok, good, part.ok_rate, ttft, e2e))
    return found
