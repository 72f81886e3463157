"""What the measures of a block are called, what they are of, and which way is better. Pure.

A measure's key is `<who>.<metric>_<statistic>`, `<who>.<metric>` where there is one value a block, and without the first part
what is of the whole block: "victim.ttft_p95", "client:shop.goodput", "makespan".
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.analysis.differences import Better

CLIENT = "client:"  # in front of a client's label, where a stream has its name

type Key = tuple[str, str]  # who ("" for the whole block), measure


@dataclass(frozen=True, slots=True)
class Metric:
    label: str
    unit: str = "s"
    better: Better = "lower"
    group: str = "times"  # times | rates | fairness


METRICS = {
    "ttft": Metric("TTFT"),
    "itl": Metric("ITL"),
    "tpot": Metric("TPOT"),
    "e2e": Metric("E2E"),
    "goodput": Metric("goodput", "1/s", "higher", "rates"),
    "throughput": Metric("generated tokens a second", "1/s", "higher", "rates"),
    "requests": Metric("requests done a second", "1/s", "higher", "rates"),
    "capacity": Metric("highest rate carried", "1/s", "higher", "rates"),
    "makespan": Metric("All done"),
    "gap": Metric("max service gap", group="fairness"),
    "wait": Metric("longest wait", group="fairness"),
    "slowdown": Metric("slowdown", "", group="fairness"),
    "oldest_wait": Metric("Oldest wait", group="fairness"),
    "jain_clients": Metric("Jain's index of tokens over clients", "", "higher", "fairness"),
    "jain_streams": Metric("Jain's index of tokens over streams", "", "higher", "fairness"),
    "jain_slowdown": Metric("Jain's index of slowdowns over streams", "", "higher", "fairness"),
    # of warm-behind-cold, whose blocks have one request of each role
    "wall": Metric("E2E"),
    "prompt": Metric("prompt time"),
}
STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "max": "largest",
}
TAIL = ("p99", "p95", "max")  # the furthest that there are requests enough for


@dataclass(frozen=True, slots=True)
class Name:
    """`who`: a stream, "client:" and a label, or "" for the whole block. `stat`: "" where a block has one value."""

    who: str
    metric: str
    stat: str

    @property
    def told(self) -> Metric:
        return METRICS[self.metric]

    @property
    def even(self) -> bool:
        return self.metric.startswith("jain")

    @property
    def label(self) -> str:
        word = f", {STATISTICS[self.stat]}" if self.stat else ""
        whose = self.who.replace(CLIENT, "client ", 1) if self.who.startswith(CLIENT) else self.who
        text = f"{self.told.label}{word}"
        return f"{whose}: {text}" if whose else text[:1].upper() + text[1:]

    @property
    def key(self) -> str:
        measure = f"{self.metric}_{self.stat}" if self.stat else self.metric
        return f"{self.who}.{measure}" if self.who else measure


def name_of(key: Key) -> Name:
    """Of a block's value. KeyError on a metric that is none of METRICS."""
    who, measure = key
    if measure in METRICS:
        return Name(who, measure, "")
    metric, _, stat = measure.rpartition("_")
    if metric not in METRICS:
        raise KeyError(measure)
    return Name(who, metric, stat)
