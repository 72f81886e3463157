"""The engine against stock llama-server: same model, flags and threads, alternating pairs, one of them under load at a time."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Answer,
    Client,
    Flags,
    complete,
    engine_command,
    finish,
    free_port,
    model_path,
    request,
    serving,
    spread,
    stock_command,
    table,
)

FLAGS = Flags(ctx_size=4 * 4096)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests sent at once, as (prompt tokens, generated tokens); the rate is all their tokens over the time to the last end."""

    name: str
    requests: Sequence[tuple[int, int]]
    stream: bool = False

    def tokens(self, answers: Sequence[Answer]) -> int:
        """Generated tokens alone where the prompts are short, all tokens where they are part of the load."""
        with_prompt = any(n_prompt > 100 for n_prompt, _ in self.requests)
        return sum(answer.predicted_n + (answer.prompt_n if with_prompt else 0) for answer in answers)


MIXED: Sequence[tuple[int, int]] = [(96, 64), (384, 64), (768, 64), (1536, 64)]
WORKLOADS = [
    Workload("decode1", [(8, 256)]),
    Workload("decode4", [(8, 128)] * 4),
    Workload("prefill", [(2048, 1)]),
    Workload("mixed", MIXED),
    Workload("decode1_stream", [(8, 256)], stream=True),
    Workload("decode4_stream", [(8, 128)] * 4, stream=True),
    Workload("mixed_stream", MIXED, stream=True),
]


async def measure(port: int, workload: Workload, seed: int) -> float:
    """Tokens per second of one round."""
    rng = random.Random(seed)
    bodies: list[dict[str, Any]] = [request(rng, *sizes, stream=workload.stream) for sizes in workload.requests]
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(port)) for _ in bodies]
        begun = time.perf_counter()
        answers = await asyncio.gather(*(complete(client, body) for client, body in zip(clients, bodies, strict=True)))
        return workload.tokens(answers) / (time.perf_counter() - begun)


async def pair(ports: tuple[int, int], workload: Workload, seed: int) -> tuple[float, float]:
    """Engine's and stock's rate, each on the same prompts; who goes first alternates with the seed."""
    rates = {}
    for side in (0, 1) if seed % 2 else (1, 0):
        rates[side] = await measure(ports[side], workload, seed)
    return rates[0], rates[1]


async def compare(ports: tuple[int, int], pairs: int, workloads: Sequence[Workload]) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows = []
    for workload in workloads:
        await pair(ports, workload, 0)  # warm-up
        rates = [await pair(ports, workload, seed) for seed in range(1, pairs + 1)]
        ratio = spread([engine / stock for engine, stock in rates], workload.name)
        figures |= ratio
        engine, stock = (statistics.median(side) for side in zip(*rates, strict=True))
        rows.append([workload.name, f"{engine:.0f}", f"{stock:.0f}", *(f"{value:.3f}" for value in ratio.values())])
        print(f"{workload.name}: {ratio[workload.name]:.3f}", flush=True)
    print(table(["workload", "engine tok/s", "stock tok/s", "ratio", "min", "max"], rows))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--only", nargs="*", help="names of workloads")
    args = parser.parse_args()
    model = model_path(args.model)
    chosen = [workload for workload in WORKLOADS if not args.only or workload.name in args.only]
    ports = free_port(), free_port()
    with serving(engine_command(model, ports[0], FLAGS), ports[0]), serving(stock_command(model, ports[1], FLAGS), ports[1]):
        figures = asyncio.run(compare(ports, args.pairs, chosen))
    finish("parity", figures | {"pairs": args.pairs})


if __name__ == "__main__":
    main()
