"""One search for the highest rate that the server carries: what each try showed, from the requests that were kept of it."""

from __future__ import annotations

from typing import Any

from workers.analysis.load import BEHIND_S, Limits
from workers.load import search
from workers.load.planned import Scaling
from workers.load.search import Try
from workers.load_results import times_of
from workers.models import Block
from workers.scenarios.streams import LoadScenario
from workers.sending import Report

BEHIND_SHARE = 0.05  # of the tightest limit: a generator that is later than that measures itself


class Searching:
    """Rates are those of the scenario; what is told of them is in requests a second as they were sent, which the stretch of times
    makes of them.
    """

    def __init__(self, scenario: LoadScenario, scaling: Scaling) -> None:
        found = search.search_of(scenario)
        assert found is not None
        self._stream, self._form = found
        self._scaling = scaling
        self._tries: list[Try] = []
        slo = next(stream.slo for stream in scenario.streams if stream.name == self._stream)
        self._limits = Limits(**{name: None if limit is None else limit * scaling.time for name, limit in slo or ()})

    @property
    def behind_s(self) -> float:
        """The dispatch delay, of 99 of 100 requests, from which on a try says nothing of the server."""
        limits = (self._limits.ttft_s, self._limits.e2e_s)
        return max(BEHIND_S, BEHIND_SHARE * min((limit for limit in limits if limit is not None), default=0.0))

    @property
    def count(self) -> int:
        return len(self._tries)

    def next_rate(self) -> float | None:
        return search.next_rate(self._form, self._tries)

    def take(self, rate: float, block: Block, report: Report, stage: int) -> None:
        """A try, its requests being in the database under this stage, or in the report's tally."""
        part = report.tally.of(stream=self._stream, stage=stage)
        if part.requests:
            requests, good = part.requests, part.good
        else:
            kept = block.samples.filter(role=self._stream, stage=stage, counted=True)
            met = [self._limits.met(times_of(sample)) for sample in kept]
            requests, good = len(met), sum(met)
        self._tries.append(Try(rate, requests, good, search.carried(self._form, requests, good)))

    def found(self) -> dict[str, Any]:
        """{stream, share, tries: [{rate_per_s, requests, good, carried}], low_per_s, high_per_s}; an end that is open is None."""
        ends = search.bracket(self._tries)
        tries = [
            {"rate_per_s": self._sent(each.rate), "requests": each.requests, "good": each.good, "carried": each.carried}
            for each in self._tries
        ]
        bracket = {"low_per_s": self._sent(ends.low), "high_per_s": self._sent(ends.high)}
        return {"stream": self._stream, "share": self._form.share, "tries": tries, **bracket}

    def _sent(self, rate: float | None) -> float | None:
        return None if rate is None else rate / self._scaling.time
