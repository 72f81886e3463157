"""The cost of being watched: eight busy slots with and without the observer, alternating pairs, on the engine and on stock.

The observer is the product's own process, with a registry and a Valkey of its own in a temporary folder. Between the arms the
server is switched on and off in the registry, so both arms share every process and differ in the watching alone. Each arm rests
first and has a round that does not count: what taking a server up costs, and how the round before left the cores, is not what
being watched costs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import Flags, engine_command, finish, free_port, model_path, serving, spread, stock_command, table
from benchmarks.parity import Workload, measure

if TYPE_CHECKING:
    from scheduler_api.models import Server

ROOT = Path(__file__).parent.parent
FLAGS = Flags(ctx_size=8 * 1024, parallel=8)
BUSY = Workload("busy", [(64, 160)] * 8)
ROUNDS = 3  # in each arm, behind one that does not count
REST_S = 1.0
FOLLOW_S = 20.0  # the observer looks at its registry once a second
END_S = 10.0


class NotFollowed(Exception):
    """The observer did not take up or give up a server in time."""


@dataclass(frozen=True, slots=True)
class Side:
    """One server: its figure's name, what runs it, and how the registry calls its kind."""

    name: str
    command: Sequence[str]
    port: int
    kind: str


def sides_of(model: Path) -> list[Side]:
    ports = free_port(), free_port()
    return [
        Side("engine", engine_command(model, ports[0], FLAGS), ports[0], "engine"),
        Side("stock", stock_command(model, ports[1], FLAGS), ports[1], "llama_server"),
    ]


@contextlib.contextmanager
def child(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs beside the benchmark and ends with it, by its pid."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def observing(folder: str) -> Iterator[None]:
    """A console's database, Valkey and observer in `folder`, and Django set up in this process to use them."""
    port = free_port()
    os.environ |= {"SLOTBOARD_VAR_DIR": folder, "REDIS_URL": f"redis://127.0.0.1:{port}/0", "VALKEY_PORT": str(port)}
    os.environ |= {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "SLOTBOARD_LOG_LEVEL": "ERROR"}
    os.environ.pop("DATABASE_URL", None)
    import django

    django.setup()
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, check=True)
    with child([sys.executable, "-m", "tools.valkey"]), child([sys.executable, "manage.py", "observe"]):
        yield


def registered(side: Side) -> Server:
    from scheduler_api.models import Server

    return Server.objects.create(name=side.name, kind=side.kind, base_url=f"http://127.0.0.1:{side.port}", enabled=False)


def watch(server: Server, wanted: bool) -> None:
    """Switches the watching on or off and waits until the observer has done so. Raises NotFollowed."""
    from scheduler_api.models import Server
    from scheduler_api.selectors import live_state

    Server.objects.filter(pk=server.pk).update(enabled=wanted)
    deadline = time.monotonic() + FOLLOW_S
    while time.monotonic() < deadline:
        state = live_state(server.pk)
        if (state is None) is not wanted and (state is None or state["health"]["state"] == "up"):
            return
        time.sleep(0.05)
    raise NotFollowed(f"{server.name} was not {'taken up' if wanted else 'given up'} by the observer within {FOLLOW_S:.0f} s")


def rate_of(port: int, seed: int) -> float:
    """Tokens per second over the rounds of an arm (harmonic mean: the rounds' tokens over the rounds' time)."""
    time.sleep(REST_S)
    rates = [asyncio.run(measure(port, BUSY, seed * (ROUNDS + 1) + number)) for number in range(ROUNDS + 1)]
    return statistics.harmonic_mean(rates[1:])


def rates_of(side: Side, server: Server, pairs: int) -> tuple[list[float], list[float]]:
    """Tokens per second (alone, watched) of each pair, in the order AB BA, on the same prompts."""
    asyncio.run(measure(side.port, BUSY, 0))  # warm-up
    alone: list[float] = []
    watched: list[float] = []
    for number in range(1, pairs + 1):
        for arm in (False, True) if number % 2 else (True, False):
            watch(server, arm)
            rate = rate_of(side.port, number)
            (watched if arm else alone).append(rate)
        print(f"{side.name} pair {number}: {1 - watched[-1] / alone[-1]:+.3f}", flush=True)
    watch(server, False)
    return alone, watched


def noise_of(alone: Sequence[float]) -> float:
    """How much two neighbouring rounds without the observer differ: the median, as a share. 0.0 with fewer than two."""
    steps = [abs(1 - later / earlier) for earlier, later in itertools.pairwise(alone)]
    return round(statistics.median(steps), 4) if steps else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--model", type=Path)
    args = parser.parse_args()
    model = model_path(args.model)
    figures: dict[str, float] = {}
    rows = []
    with tempfile.TemporaryDirectory(prefix="slotboard-observe-") as folder, observing(folder):
        for side in sides_of(model):
            with serving(side.command, side.port):
                alone, watched = rates_of(side, registered(side), args.pairs)
            slowdown = spread([1 - after / before for before, after in zip(alone, watched, strict=True)], f"slowdown_{side.name}")
            noise = noise_of(alone)
            figures |= slowdown | {f"noise_{side.name}": noise}
            speeds = (f"{statistics.median(rates):.0f}" for rates in (alone, watched))
            rows.append([side.name, *speeds, *(f"{value:+.3f}" for value in slowdown.values()), f"{noise:.3f}"])
    print(table(["server", "alone tok/s", "watched tok/s", "slowdown", "min", "max", "noise"], rows))
    finish("observe", figures | {"pairs": args.pairs})


if __name__ == "__main__":
    main()
