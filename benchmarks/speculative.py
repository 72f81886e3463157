"""Generation with and without n-gram lookup, on a text that repeats itself and on one that does not.

One server, whose policy is switched between rounds.

`python -m benchmarks.speculative` prints a table, and as its last line the ratios as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Client, Flags, ServerFailed, engine_command, finish, free_port, model_path, serving, spread, table
from engine.tiny_model import ORDINARY_TOKENS

FLAGS = Flags(ctx_size=4096, parallel=1)
SETTLED = 192  # tokens after which greedy text of random weights goes round in a circle
PASSAGE = (
    "The harbour of Lund lies in the lee of two islands. Every ship that comes in must give its name, its load and its last port "
    "to the pilot, who writes them down and sends the list to the office before noon. In the winter of 1893 the ice closed the "
    "northern entrance for eleven weeks, and all ships had to wait in the southern roads until the breaker came. The pilot kept "
    "his list all the same: forty-one ships, nine of them with coal, twelve with timber, and one with a piano for the school."
)
STORY = "On the first morning of the long journey, none of the seven travellers had any idea what"


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second from the first generated token to the last, and what came of drafts."""

    rate: float
    drafted: int
    accepted: int


async def complete(client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
    status, raw = await client.post("/completion", {"ignore_eos": True, "return_tokens": True, **body})
    if status != 200:
        raise ServerFailed(f"the server answered {status}: {raw[:300]!r}")
    answer: dict[str, Any] = json.loads(raw)
    return answer


async def switch(client: Client, values: Mapping[str, Any]) -> None:
    _, raw = await client.get("/scheduler")
    version = json.loads(raw)["policy"]["version"]
    status, raw = await client.patch("/scheduler/policy", {"expected_version": version, "set": dict(values)})
    policy = json.loads(raw)
    if status != 200 or policy["effective"]["speculative"] != values["speculative"]:
        raise ServerFailed(f"the policy was not taken: {raw[:300]!r}")


async def repetitive(client: Client, seed: int, *, real: bool) -> dict[str, Any]:
    """A prompt whose greedy continuation repeats.

    Of a real model a passage that begins for the third time; of random weights a text that has run into its circle, as
    greedy text of such a model always does.
    """
    if real:
        begin = " ".join(PASSAGE.split()[: 6 + seed % 5])
        return {"prompt": f"{PASSAGE}\n\n{PASSAGE}\n\n{begin}", "temperature": 0}
    prompt = random.Random(seed).choices(ORDINARY_TOKENS, k=8)
    answer = await complete(client, {"prompt": prompt, "n_predict": SETTLED, "temperature": 0})
    return {"prompt": [*prompt, *answer["tokens"]], "temperature": 0}


async def unlike(client: Client, seed: int, *, real: bool) -> dict[str, Any]:
    """A prompt and samplers whose continuation has nothing to look up: of a real model a story, of random weights any tokens."""
    if real:
        return {"prompt": STORY, "temperature": 1.0, "seed": seed}
    prompt = random.Random(seed).choices(ORDINARY_TOKENS, k=SETTLED)
    return {"prompt": prompt, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed}


WORKLOADS = {"repetitive": repetitive, "random": unlike}


async def measure(client: Client, body: Mapping[str, Any], policy: Mapping[str, Any]) -> tuple[Round, list[int]]:
    await switch(client, policy)
    answer = await complete(client, body)
    timings = answer["timings"]
    told = Round(timings["predicted_per_second"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))
    return told, answer["tokens"]


async def compare(port: int, pairs: int, n_tokens: int, ngram: Mapping[str, Any], *, real: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows = []
    async with Client(port) as client:
        for name, make in WORKLOADS.items():
            rounds: list[tuple[Round, Round]] = []
            same = 0
            for seed in range(pairs + 1):  # the first one warms up
                await switch(client, {"speculative": "off"})
                body = {**await make(client, seed, real=real), "n_predict": n_tokens}
                found: dict[bool, tuple[Round, list[int]]] = {}
                for drafts in (True, False) if seed % 2 else (False, True):
                    found[drafts] = await measure(client, body, ngram if drafts else {"speculative": "off"})
                if seed:
                    rounds.append((found[False][0], found[True][0]))
                    same += found[False][1] == found[True][1]
            ratio = spread([after.rate / before.rate for before, after in rounds], f"speedup_{name}")
            figures |= ratio
            drafted, accepted = (sum(getattr(after, each) for _, after in rounds) for each in ("drafted", "accepted"))
            figures |= {f"drafted_{name}": drafted, f"accepted_{name}": accepted, f"same_output_{name}": same}
            before, after = (statistics.median(one.rate for one in side) for side in zip(*rounds, strict=True))
            told = f"{accepted} of {drafted}"
            rows.append(
                [name, f"{before:.0f}", f"{after:.0f}", *(f"{value:.3f}" for value in ratio.values()), told, f"{same}/{pairs}"]
            )
    print(table(["text", "tok/s", "with lookup", "ratio", "min", "max", "drafts right", "same output"], rows))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speculative")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=512, help="generated in each round")
    parser.add_argument("--n-max", type=int, default=16)
    parser.add_argument("--ngram-size", type=int, default=4)
    parser.add_argument("--model", type=Path, help="a real model; without it random weights")
    args = parser.parse_args()
    port = free_port()
    ngram = {"speculative": "ngram", "speculative_n_max": args.n_max, "speculative_ngram_size": args.ngram_size}
    with serving(engine_command(model_path(args.model), port, FLAGS), port):
        figures = asyncio.run(compare(port, args.pairs, args.tokens, ngram, real=args.model is not None))
    finish("speculative", figures | {"pairs": args.pairs})


if __name__ == "__main__":
    main()
