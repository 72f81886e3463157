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
    "capacity": Kind("Rate carried", "highest-rate-carried", "1/s", rate=True),
    "goodput": Kind("Goodput", "goodput", "1/s", rate=True),
    "throughput": Kind("Generated tokens", "measures-of-a-stream", "1/s", rate=True),
    "requests": Kind("Requests done", "measures-of-a-stream", "1/s", rate=True),
    "makespan": Kind("All done", "makespan"),
    "gap": Kind("Max service gap", "max-service-gap-of-a-run"),
    "wait": Kind("Longest wait", "longest-wait-of-a-run"),
    "oldest_wait": Kind("Oldest wait", "longest-wait-of-a-run"),
    "slowdown": Kind("Slowdown", "slowdown-against-running-alone", ""),
    "jain_clients": Kind("Jain, tokens over clients", "jains-index-of-a-run", "", rate=True),
    "jain_streams": Kind("Jain, tokens over streams", "jains-index-of-a-run", "", rate=True),
    "jain_slowdown": Kind("Jain, slowdowns over streams", "jains-index-of-a-run", "", rate=True),
}
#: of warm-behind-cold, whose blocks have one request of each role
PAIR_KINDS = {
    "short_wall": Kind("Short request, E2E", "e2e"),
    "short_wait": Kind("Short request, wait", "wait"),
    "short_prompt": Kind("Short request, prompt time", "prompt-time"),
    "cold_wall": Kind("Cold request, E2E", "e2e"),
    "cold_prompt": Kind("Cold request, prompt time", "prompt-time"),
    "makespan": Kind("Both done", "makespan"),
}
STATISTICS = {"mean": "mean", "p50": "median", "p95": "95th", "p99": "99th", "max": "largest", "": ""}
DRAWN = ("ttft", "itl", "tpot", "e2e")  # what requests are drawn by


def kind_of(measure: Mapping[str, Any]) -> Kind:
    """Of a row of `workers.measure_rows.measure_row`; for a metric that came later than this table, what the row itself says."""
    if measure["key"] in PAIR_KINDS and measure["label"] == PAIR_KINDS[measure["key"]].name:
        return PAIR_KINDS[measure["key"]]
    return KINDS.get(measure["metric"]) or Kind(
        str(measure["label"]).rpartition(": ")[2], "measures-of-a-stream", measure["unit"], rate=measure["better"] == "higher"
    )
