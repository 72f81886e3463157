"""One request of a load as the analysis sees it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Times:
    """One request, seconds; None where a stage was not reached. `gaps`: between tokens, as the client read them.

    `n_generated` counts its tokens, by whoever said so.
    """

    stream: str
    outcome: str
    sent_at: float
    done_at: float | None
    ttft_s: float | None
    e2e_s: float | None
    gaps: tuple[float, ...] = ()
    n_generated: int | None = None
    n_prompt: int | None = None
    n_cached: int | None = None
    dispatch_s: float | None = None
    stage: int = 0
    client: str = ""
    wait_s: float | None = None

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def tokens_at(self) -> tuple[float, ...]:
        """When its tokens were read; empty when there was none, or only one answer at the end."""
        if self.ttft_s is None:
            return ()
        return tuple(accumulate(self.gaps, initial=self.sent_at + self.ttft_s))

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (generated tokens - 1), from two tokens on."""
        if self.e2e_s is None or self.ttft_s is None or self.n_generated is None or self.n_generated < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.n_generated - 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request, in seconds; `itl_s` bounds its largest gap."""

    ttft_s: float | None = None
    itl_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def met(self, times: Times) -> bool:
        """A limit on something that was not measured is not met."""
        pairs = (
            (self.ttft_s, times.ttft_s),
            (self.itl_s, max(times.gaps, default=0.0)),
            (self.tpot_s, times.tpot_s if times.n_generated is None or times.n_generated > 1 else 0.0),
            (self.e2e_s, times.e2e_s),
        )
        return times.ok and all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


def grouped(rows: Sequence[Times], by: Callable[[Times], str]) -> dict[str, list[Times]]:
    """In the order in which the groups first come."""
    found: dict[str, list[Times]] = defaultdict(list)
    for row in rows:
        found[by(row)].append(row)
    return dict(found)
