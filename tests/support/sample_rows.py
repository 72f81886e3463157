"""Sample runs as rows of the database, so that pages and selectors read them like any other run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from scheduler_api.models import Server, ServerKind
from tests.support import sample_runs
from workers.analysis.iterations import shortened
from workers.models import Block, Run, RunState, Sample

PHYSICAL = {"prefill_order": "physical"}
ROTATING = {"prefill_order": "rotating"}
BLOCK_S = 7.0


def make_server(name: str = "studio-1", url: str = "http://127.0.0.1:9") -> Server:
    return Server.objects.get_or_create(name=name, defaults={"kind": ServerKind.ENGINE, "base_url": url})[0]


def make_run(
    server: Server, by: User | None = None, *, pairs: int = 8, planned: int | None = None, seed: int = 1, **fields: Any
) -> Run:
    """A run of `planned` pairs of which `pairs` are complete; finished unless `fields` say otherwise."""
    planned = pairs if planned is None else planned
    scale = float(fields.get("scale", 1.0))
    started = datetime.now(UTC) - timedelta(minutes=42)
    defaults: dict[str, Any] = {
        "scenario": "warm-behind-cold",
        "policy_a": PHYSICAL,
        "policy_b": ROTATING,
        "share": 0.1,
        "seed": 7,
        "state": RunState.FINISHED,
        "started_at": started,
        "finished_at": started + timedelta(seconds=BLOCK_S * (2 * pairs + 3)),
        "policy_before": {"version": 3, "requested": PHYSICAL, "effective": PHYSICAL},
        "policy_version": 3 + 2 * pairs,
        "policy_restored": True,
        "progress_done": 2 * pairs + 1,
        "progress_total": 2 * planned + 1,
        "conditions": _conditions(server, scale),
    }
    run = Run.objects.create(server=server, created_by=by, repetitions=planned, **{**defaults, **fields, "scale": scale})
    add_pairs(run, 1, pairs, seed)
    return run


def add_pairs(run: Run, first: int, last: int, seed: int = 1) -> None:
    """Complete pairs `first` to `last`, in the order AB, BA, AB."""
    for pair in range(first, last + 1):
        for place, arm in enumerate("AB" if pair % 2 else "BA"):
            add_block(run, 2 * pair - 1 + place, pair, arm, seed)


def add_block(run: Run, index: int, pair: int, arm: str, seed: int = 1) -> Block:
    order = "rotating" if (run.policy_a if arm == "A" else run.policy_b).get("prefill_order") == "rotating" else "physical"
    started = run.started_at or datetime.now(UTC)
    at = started + timedelta(seconds=BLOCK_S * index)
    made = sample_runs.make_block(order, start=at.timestamp(), scale=run.scale, seed=seed * 1000 + 2 * pair + (arm == "B"))
    timeline = {**shortened(made["timeline"]["iterations"]), "requests": made["timeline"]["requests"]}
    block = Block.objects.create(
        run=run, index=index, pair=pair, arm=arm, policy_version=3 + index, started_at=at, timeline=timeline
    )
    sizes = run.conditions["tokens"]
    for request in made["timeline"]["requests"]:
        role = request["role"]
        times = made["samples"][role]
        cached = sizes["depth"] if role == "short" else 0
        Sample.objects.create(
            run=run,
            block=block,
            pair=pair,
            arm=arm,
            role=role,
            slot=request["slot"],
            sent_at=request["sent_at"],
            first_token_at=request["done_at"],
            done_at=request["done_at"],
            ttft_s=times["wall_s"],
            n_prompt=sizes[role] + cached,
            n_cached=cached,
            **times,
        )
    return block


def _conditions(server: Server, scale: float) -> dict[str, Any]:
    described = {
        "name": server.name,
        "backend": "llama",
        "build": "cyllama 0.7.0, llama.cpp b11669",
        "n_slots": 4,
        "n_ctx": 196_608,
    }
    sizes = {"cold": round(18_000 * scale), "depth": round(40_000 * scale), "short": round(1_500 * scale), "n_predict": 1}
    return {
        "server": {**described, "n_ctx_slot": 49_152, "n_batch": sample_runs.N_BATCH, "n_ubatch": 512, "n_threads": 2},
        "kv_mode": "split",
        "kv_from": "flag",
        "scenario": {"name": "warm-behind-cold", "version": 1},
        "tokens": sizes,
        "cold_alone_s": 4.75 * scale,
        "short_alone_s": 0.86 * scale,
        "warm_s": 14.2 * scale,
        "batch_s": 0.43,
        "clock_offset_s": 0.0,
    }
