"""One process of the load generator for `benchmarks.generator`: `closed USERS SECONDS` or `constant RATE SECONDS` against a stub,
or shard SHARD of COUNT of such a load.

Prints "ready" when everything is planned, begins at a line of its input, and ends with one line of JSON.
"""

# ruff: noqa: E402 - Django must be set up before what stands beside its models can be imported.
from __future__ import annotations

import json
import os
import sys
from typing import Any

import django
import uvloop

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
django.setup()

from workers.analysis.numbers import percentile
from workers.load.clock import ClientClock
from workers.load.dialects import Native
from workers.load.http import Wire
from workers.load.plan import make_plan
from workers.load.planned import Plan, Scaling
from workers.load.runner import Load, Runner
from workers.load.shards import share
from workers.scenarios.streams import LoadScenario

MOST_REQUESTS = 4000  # a second, planned for a closed loop: more than one process can send


def plan(kind: str, amount: float, seconds: float) -> Plan:
    closed = {"kind": "closed", "concurrency": int(amount), "requests": int(MOST_REQUESTS * seconds), "for_s": seconds}
    arrivals: dict[str, Any] = closed if kind == "closed" else {"kind": "constant", "rate": amount, "for_s": seconds}
    stream = {"name": "reader", "arrivals": arrivals, "prompt": {"tokens": 16}, "output": 64}
    whole = {"name": "bench", "version": 1, "title": "", "summary": "", "written_for": 1.0, "streams": [stream]}
    return make_plan(LoadScenario.model_validate(whole), 1, Scaling())


async def run(url: str, planned: Plan) -> Load:
    async with Wire(url) as wire:
        runner = Runner(wire, Native(1, tuple(range(300, 400))), ClientClock())
        runner.prepare(planned)
        print("ready", flush=True)
        sys.stdin.readline()
        return await runner.run(planned)


def main(url: str, kind: str, amount: str, seconds: str, shard: str = "0", count: str = "1") -> None:
    load = uvloop.run(run(url, share(plan(kind, float(amount), float(seconds)), int(shard), int(count)).plan))
    sent = [record for record in load.records if record.answer.outcome != "skipped"]
    failed = [record.answer.error for record in sent if record.answer.outcome != "ok"]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(sent)} requests failed: {failed[0]}")
    span = max(record.answer.done_at or 0.0 for record in sent) - min(record.answer.sent_at for record in sent)
    delays = [delay * 1000 for record in sent if (delay := record.dispatch_s) is not None]
    told = {
        "rate": sum(len(record.answer.chunks) for record in sent) / span,
        "p50_ms": percentile(delays, 0.5),
        "p99_ms": percentile(delays, 0.99),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
