"""The load generator beside locust's FastHttpUser, on the same streams of a stub, in turns; its own dispatch delay; two shards of
a load against one process with all of it.

The stub is a process of its own and answers at once, 64 events an answer, so what is measured is how fast a client reads.
Locust counts the lines that its own `iter_lines` gives it; the generator parses each event and keeps its time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import finish, spread, table

ROOT = Path(__file__).parent.parent
CHUNKS = 64
USERS = 32
SHARDS = 2


@contextlib.contextmanager
def stub(per_write: int = 4) -> Iterator[str]:
    """`per_write`: events in one write; the more, the less of the machine the stub takes."""
    command = [sys.executable, "-m", "benchmarks.streaming_stub", "--chunks", str(CHUNKS), "--per-write", str(per_write)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def results(children: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Starts all at once, once all are ready, and waits for what they say."""
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate()[0] for child in children]
    return [json.loads(text.strip().splitlines()[-1]) for text in said]


def closed(url: str, seconds: float, shards: int = 1, users: int = USERS) -> float:
    """Events a second that the shards of one load of `users` users read together, each in a process."""
    started = [start("generator_worker", url, "closed", users, seconds, shard, shards) for shard in range(shards)]
    return float(sum(each["rate"] for each in results(started)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6, help="of a generator's and a locust's turn")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    asked = parser.parse_args()
    with stub() as one, stub(CHUNKS) as light:
        ours: list[float] = []
        theirs: list[float] = []
        for pair in range(asked.pairs):
            for own in (True, False) if pair % 2 == 0 else (False, True):
                (ours if own else theirs).append(closed(one, asked.seconds) if own else locust(one, asked.seconds))
        half = statistics.median(ours) / CHUNKS / 2
        delays = results([start("generator_worker", one, "constant", half, asked.seconds)])[0]
        speedups = []
        for _ in range(max(1, asked.pairs // 2)):
            single, spread_out = (closed(light, asked.seconds, shards, SHARDS * USERS) for shards in (1, SHARDS))
            speedups.append(spread_out / single)
    report(ours, theirs, delays, speedups, half)


def locust(url: str, seconds: float) -> float:
    return float(results([start("generator_locust", url, USERS, seconds)])[0]["rate"])


def report(ours: list[float], theirs: list[float], delays: dict[str, Any], shards: list[float], half: float) -> None:
    rows = [[str(n + 1), f"{a:,.0f}", f"{b:,.0f}", f"{a / b:.2f}"] for n, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    print(table(["pair", "generator, events/s", "locust, events/s", "ratio"], rows))
    print(f"\nat {half:,.0f} requests/s: dispatch delay p50 {delays['p50_ms']:.2f} ms, p99 {delays['p99_ms']:.2f} ms")
    cores = len(os.sched_getaffinity(0))
    print(
        f"two shards against one process: {', '.join(f'{ratio:.2f}' for ratio in shards)} on {cores} cores, the stub on them too"
    )
    figures = {
        **spread([a / b for a, b in zip(ours, theirs, strict=True)], "ratio_vs_locust"),
        **spread(ours, "events_per_s"),
        "p99_dispatch_ms": round(delays["p99_ms"], 3),
        **spread(shards, "shard_speedup"),
        "cores": cores,
    }
    finish("generator", figures)


if __name__ == "__main__":
    main()
