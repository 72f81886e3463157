"""Sample runs of streams as rows of the database: loads played through a small batch model with known costs.

Each slot serves one request at a time; under physical order the lowest slot fills the batch first, under rotating order the one
after the slot served last. Times agree with each other as a real run's do. Nothing here is a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from django.contrib.auth.models import User

from scheduler_api.models import Server
from tests.support import sample_rows
from workers.analysis.iterations import shortened
from workers.models import Block, Run, RunState, Sample
from workers.scenarios import library
from workers.scenarios.streams import LoadScenario

N_BATCH = 2048
COST_S = 0.000176  # a prompt token
TOKEN_S = 0.0016  # a generation step
BLOCK_S = 40.0


@dataclass(slots=True)
class Ask:
    """One request on its way: `at` seconds after the block began, or `think` after the one before it of its stream."""

    stream: str
    slot: int
    place: int
    n_prompt: int
    n_predict: int
    at: float | None
    think: float = 0.0
    stage: int = 0
    client: str = ""
    outcome: str = "ok"
    left: int = 0
    visit: float | None = None
    sent: float = 0.0
    tokens: list[float] = field(default_factory=list)
    done: float | None = None


def victim_and_attacker(scale: float = 1.0) -> list[Ask]:
    long = [Ask("attacker", 0, place, round(12_000 * scale), 4, None if place else 0.0) for place in range(3)]
    short = [Ask("victim", 1, place, 200, 4, None if place else 0.5, 0.3) for place in range(8)]
    return [*long, *short]


def many_streams(streams: int = 12, requests: int = 20, scale: float = 0.1, seed: int = 1) -> list[Ask]:
    """Streams on slots of their own, each sending prompts of its own size back to back."""
    rng = Random(seed)
    return [
        Ask(f"tenant-{number + 1:02}", number % 8, place, round(rng.uniform(200, 4000) * scale), 8, 0.05 * place * (number + 1))
        for number in range(streams)
        for place in range(requests)
    ]


def levels(stages: int = 4, each: int = 12) -> list[Ask]:
    """A rate that doubles from stage to stage, over four slots."""
    asks: list[Ask] = []
    at = 0.0
    for stage in range(stages):
        for _ in range(each):
            asks.append(Ask("request", len(asks) % 4, len(asks), 800, 16, at, stage=stage))
            at += 1.6 / 2**stage
    return asks


def play(asks: Sequence[Ask], order: str, start: float, seed: int) -> list[dict[str, Any]]:
    """Fills in the times of `asks` and gives the iterations."""
    rng = Random(seed)
    waiting = {slot: [ask for ask in asks if ask.slot == slot] for slot in sorted({ask.slot for ask in asks})}
    last: dict[str, float] = {}
    now, number, cursor = start, 9000, -1
    iterations: list[dict[str, Any]] = []
    for ask in asks:
        ask.left = max(1, round(ask.n_prompt * rng.uniform(0.97, 1.03)))
    while any(waiting.values()):
        heads = [queue[0] for queue in waiting.values() if queue]
        for ask in heads:
            ask.sent = ask.sent or _due(ask, start, last)
        present = sorted((ask for ask in heads if ask.sent <= now), key=lambda ask: ask.slot)
        if not present:
            now = min(ask.sent for ask in heads)
            continue
        generating = [ask for ask in present if not ask.left]
        room = N_BATCH - len(generating)
        pending = [ask for ask in present if ask.left]
        if order == "rotating":
            pending.sort(key=lambda ask: (ask.slot <= cursor, ask.slot))
        prompt: list[list[int]] = []
        skipped: list[list[Any]] = []
        cost = 0.0
        for ask in pending:
            taken = min(room, ask.left)
            if not taken:
                skipped.append([ask.slot, f"batch full, slot {prompt[0][0]} took {prompt[0][1]} of {N_BATCH}"])
                continue
            ask.visit = ask.visit or now
            ask.left, room, cost = ask.left - taken, room - taken, cost + taken * COST_S
            prompt.append([ask.slot, taken])
        cursor = prompt[-1][0] if prompt else cursor
        took = (cost + TOKEN_S * bool(generating)) * rng.uniform(0.95, 1.05)
        iterations.append(
            {
                **{"i": number, "t": now, "run_ms": took * 1000, "prompt": prompt, "gen": [[ask.slot, 1] for ask in generating]},
                **{"skipped": skipped, "phase": "continuous", "policy": 3},
            }
        )
        now, number = now + took + 0.0004, number + 1
        for ask in present:
            if ask.visit is not None and not ask.left:
                ask.tokens.append(now)
                if len(ask.tokens) >= ask.n_predict:
                    ask.done = now
                    last[ask.stream] = now
                    waiting[ask.slot].remove(ask)
    return iterations


def _due(ask: Ask, start: float, last: dict[str, float]) -> float:
    return start + ask.at if ask.at is not None else last.get(ask.stream, start) + ask.think


def text_of(name: str) -> str:
    """The library's YAML of a scenario made of streams."""
    scenario = library.find(name)
    assert isinstance(scenario, LoadScenario)
    return library.text_of(name)


def make_load_run(
    server: Server,
    by: User | None = None,
    *,
    scenario: str = "victim-and-attacker",
    text: str = "",
    pairs: int = 8,
    planned: int | None = None,
    seed: int = 1,
    asks: Any = victim_and_attacker,
    kept_iterations: bool = True,
    spoil: Any = None,
    **fields: Any,
) -> Run:
    """A run of `pairs` complete pairs; `asks()` makes a block's requests, `spoil(pair, arm, asks)` may change their ends."""
    planned = pairs if planned is None else planned
    started = fields.pop("started_at", None) or datetime.now(UTC) - timedelta(minutes=42)
    defaults: dict[str, Any] = {
        "scenario": scenario,
        "scenario_text": text or text_of(scenario),
        "policy_a": sample_rows.PHYSICAL,
        "policy_b": sample_rows.ROTATING,
        "seed": 7,
        "state": RunState.FINISHED,
        "started_at": started,
        "finished_at": started + timedelta(seconds=BLOCK_S * (2 * pairs + 1)),
        "policy_before": {"version": 3, "requested": sample_rows.PHYSICAL, "effective": sample_rows.PHYSICAL},
        "policy_version": 3 + 2 * pairs,
        "policy_restored": True,
        "progress_done": 2 * pairs + 1,
        "progress_total": 2 * planned + 1,
        "conditions": conditions(server, scenario),
    }
    run = Run.objects.create(server=server, created_by=by, repetitions=planned, **{**defaults, **fields})
    for pair in range(1, pairs + 1):
        for place, arm in enumerate("AB" if pair % 2 else "BA"):
            _add_block(run, 2 * pair - 1 + place, pair, arm, seed, asks(), kept_iterations, spoil)
    return run


def _add_block(run: Run, index: int, pair: int, arm: str, seed: int, asks: list[Ask], kept_iterations: bool, spoil: Any) -> Block:
    order = "rotating" if (run.policy_a if arm == "A" else run.policy_b).get("prefill_order") == "rotating" else "physical"
    assert run.started_at is not None
    at = run.started_at + timedelta(seconds=BLOCK_S * index)
    iterations = play(asks, order, at.timestamp(), seed * 1000 + 2 * pair + (arm == "B"))
    if spoil is not None:
        spoil(pair, arm, asks)
    timeline = {
        **shortened(iterations if kept_iterations else []),
        "requests": [_row(ask) for ask in asks],
        "started_at": at.timestamp(),
    }
    block = Block.objects.create(
        run=run,
        index=index,
        pair=pair,
        arm=arm,
        policy_version=3 + index,
        started_at=at,
        finished_at=at + timedelta(seconds=BLOCK_S - 1),
        timeline=timeline,
    )
    Sample.objects.bulk_create([_sample(run, block, ask) for ask in asks], batch_size=200)
    return block


def _row(ask: Ask) -> dict[str, Any]:
    first = ask.tokens[0] if ask.tokens else None
    return {
        **{"role": ask.stream, "slot": ask.slot, "sent_at": ask.sent, "first_visit_at": ask.visit, "first_token_at": first},
        **{"done_at": ask.done, "n_prompt": ask.n_prompt, "n_cached": 0, "outcome": ask.outcome},
    }


def _sample(run: Run, block: Block, ask: Ask) -> Sample:
    first = ask.tokens[0] if ask.tokens else None
    return Sample(
        run=run,
        block=block,
        pair=block.pair,
        arm=block.arm,
        role=ask.stream,
        client=ask.client or ask.stream,
        slot=ask.slot,
        place=ask.place,
        stage=ask.stage,
        scheduled_at=None if ask.at is None else ask.sent - 0.0004 * (1 + ask.place % 3),
        sent_at=ask.sent,
        headers_at=ask.sent + 0.002,
        first_byte_at=first,
        first_token_at=first,
        first_content_at=first,
        last_token_at=ask.tokens[-1] if ask.tokens else None,
        done_at=ask.done,
        chunks_ms=[round((moment - ask.sent) * 1000, 3) for moment in ask.tokens],
        wall_s=None if ask.done is None else ask.done - ask.sent,
        wait_s=None if ask.visit is None else ask.visit - ask.sent,
        prompt_s=None if ask.visit is None or first is None else first - ask.visit,
        ttft_s=None if first is None else first - ask.sent,
        n_prompt=ask.n_prompt,
        n_cached=0,
        n_generated=len(ask.tokens),
        tokens_from="timings",
        outcome=ask.outcome,
        ok=ask.outcome in ("ok", "cancelled"),
        error="" if ask.outcome in ("ok", "cancelled") else f"the request was {ask.outcome}",
    )


def conditions(server: Server, scenario: str) -> dict[str, Any]:
    described = {"name": server.name, "backend": "llama", "build": "cyllama 0.7.0, llama.cpp b11669", "n_slots": 4}
    return {
        "server": {**described, "n_ctx": 196_608, "n_ctx_slot": 49_152, "n_batch": N_BATCH, "n_ubatch": 512, "n_threads": 2},
        "kv_mode": "split",
        "kv_from": "flag",
        "scenario": {"name": scenario, "version": 1},
        "fitted": {"speed": 4100.0, "written_for": 4000.0, "scale": 1.0, "times": 0.98},
        "planned": {"requests": 11, "prompt_tokens": 37_600, "output_tokens": 268},
        "expected_block_s": 12.4,
        "clock_offset_s": 0.0,
    }
