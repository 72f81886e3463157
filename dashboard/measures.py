"""What the pages of results call each measure: its name, unit, definition and what a smaller value is called. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.charts import words

THOUSANDTHS = 1000.0


@dataclass(frozen=True, slots=True)
class Kind:
    """`factor`: from the unit of results to the one shown. `anchor`: of its definition in docs/metrics.md."""

    name: str
    anchor: str
    unit: str = "s"
    factor: float = 1.0
    rate: bool = False
    what: str = "request"

    @property
    def told(self) -> tuple[str, str]:
        return words.RATE if self.rate else words.TIME


KINDS = {
    "ttft": Kind("TTFT", "ttft"),
    "itl": Kind("ITL", "itl", "ms", THOUSANDTHS, what="gap"),
    "tpot": Kind("TPOT", "tpot", "ms", THOUSANDTHS),
    "e2e": Kind("E2E", "e2e"),
    "goodput": Kind("Goodput", "goodput", "1/s", rate=True),
    "throughput": Kind("Generated tokens", "measures-of-a-stream", "1/s", rate=True),
    "requests": Kind("Requests done", "measures-of-a-stream", "1/s", rate=True),
    "makespan": Kind("All done", "makespan"),
    "short_wall": Kind("Short request, E2E", "e2e"),
    "short_wait": Kind("Short request, wait", "wait"),
    "short_prompt": Kind("Short request, prompt time", "prompt-time"),
    "cold_wall": Kind("Cold request, E2E", "e2e"),
    "cold_prompt": Kind("Cold request, prompt time", "prompt-time"),
}
STATISTICS = {"mean": "mean", "p50": "median", "p95": "95th", "p99": "99th", "max": "largest", "": ""}
DRAWN = ("ttft", "itl", "tpot", "e2e")  # what requests are drawn by


@dataclass(frozen=True, slots=True)
class Name:
    """Whose measure (a stream, "" for the whole block), which, and which statistic of it."""

    stream: str
    measure: str
    statistic: str

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.measure) or Kind(self.measure.replace("_", " "), "measures-of-a-stream")


def name_of(measure: Mapping[str, Any]) -> Name:
    """Of a measure of `workers.selectors.results`, by its key: "victim.ttft_p95", "victim.goodput", "makespan"."""
    stream, _, rest = str(measure["key"]).rpartition(".")
    head, _, last = rest.rpartition("_")
    if head and last in STATISTICS:
        return Name(stream, head, last)
    return Name(stream, rest, "")
