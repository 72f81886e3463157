"""One example of each kind of state that a page must show."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

from tests.support.sample_states.server import FakeServer
from tests.support.sample_states.words import Json


def _barrier(pk: int) -> FakeServer:
    server = FakeServer(pk, "barrier", phase="continuous", seed=5, load=0.1, reverts_in=192.0).play(900)
    server.mark("phase: continuous to barrier", "mira")
    server.phase = "barrier"
    server.play(80)
    for _ in range(3000):  # until one is held while another still has prompt to do
        if any(slot["state"] == "held" for slot in server.slots) and any(slot["state"] == "queued" for slot in server.slots):
            break
        server.step()
    return server


EXAMPLES: dict[str, Callable[[int], FakeServer]] = {
    "idle": lambda pk: FakeServer(pk, "idle", load=0.0),
    "busy": lambda pk: FakeServer(pk, "busy", seed=3, load=0.08).play(900),
    "barrier": _barrier,
    "unified": lambda pk: FakeServer(pk, "unified", unified=True, seed=4).play(200),
    "simulated": lambda pk: FakeServer(pk, "simulated", backend="simulated", order="physical", seed=6).play(200),
    "stock": lambda pk: FakeServer(pk, "stock", kind="llama_server", seed=7).play(120),
    "wide": lambda pk: FakeServer(pk, "wide", n_slots=12, seed=9, load=0.2, prompt_tokens=(300, 4000)).play(200),
    "many": lambda pk: FakeServer(pk, "many", n_slots=256, seed=8, load=0.02, prompt_tokens=(60, 3000)).play(200),
}


@cache
def _played(name: str) -> FakeServer:
    """Played once: that takes longer than a copy."""
    return EXAMPLES[name](NAMES.index(name) + 1)


def vllm(pk: int, now: float) -> Json:
    """Two engines behind one address, told apart by its metrics: no slots, no batches."""
    from scheduler_api.kinds.vllm_state import NEVER_TOLD, WHY_NOT  # wants Django's settings, which the others do without

    base = FakeServer(pk, "vllm", kind="vllm", seed=2).play(40).shift(now).state()
    unit = {
        "id": "0", "kind": "engine", "model": "qwen", "state": "up", "text": "Serving", "detail": "", "running": 3, "waiting": 2,
        "n_slots": None, "n_ctx_slot": None, "kv_use": 0.42, "prefix_hits": 0.8, "prompt_tps": 512.0, "gen_tps": 90.4,
        "ttft": {"p50": 0.3, "p95": 0.9, "p99": 1.0, "n": 41, "over_s": 59.8},
        "itl": {"p50": 0.03, "p95": 0.05, "p99": 0.1, "n": 900, "over_s": 59.8},
        "tpot": None, "missing": {},
    }  # fmt: skip
    stuck = {"state": "not_serving", "text": "Up but not serving, no token for 3 min", "detail": "1 request runs, 5 wait"}
    other = unit | stuck | {"id": "1", "running": 1, "waiting": 5, "gen_tps": 0.0, "ttft": None, "itl": None}
    other["missing"] = {"ttft": "No request got its first token in the last minute."}
    return base | {
        "units": [unit, other],
        "slots": [],
        "switching": base["switching"] | {"why_not": WHY_NOT},
        "missing": NEVER_TOLD,
        "fairness": None,
    }


def down(state: Json, health: str, text: str, detail: str, seconds: float) -> Json:
    """The same server when it no longer answers."""
    return state | {
        "health": {
            "state": health,
            "text": text,
            "detail": detail,
            "since": state["t"] - seconds,
            "seen_at": state["t"] - seconds,
        },
        "figures": state["figures"] | {"prompt_tps": None, "gen_tps": None, "worst_stall_s": None, "worst_stall_slot": None},
        "queue": {"depth": None, "oldest_s": None},
    }


#: How the others are not up: kind, health, and in words what and why.
OTHERS = {
    "down": ("engine", "down", "Down", "connection refused"),
    "unauthorised": ("llama_server", "unauthorised", "Unauthorised", "401 on /slots; its key is missing here"),
    "silent": ("llama_server", "silent", "Busy, no answer", "no answer for 42 s, last seen in a prompt on slot 0"),
    "loading": ("llama_server", "loading", "Loading the model", "it answers 503 until then"),
}
NAMES = (*EXAMPLES, "vllm", *OTHERS)


def example(name: str, now: float) -> Json:
    """The state of that name; ids count from 1 in the order of NAMES."""
    pk = NAMES.index(name) + 1
    if name in EXAMPLES:
        return copy.deepcopy(_played(name)).shift(now).state()
    if name == "vllm":
        return vllm(pk, now)
    kind, health, text, detail = OTHERS[name]
    base = FakeServer(pk, health, kind=kind, seed=pk).play(0 if health == "loading" else 40)
    return down(base.shift(now).state(), health, text, detail, 252.0 if health == "down" else 42.0)


def examples(now: float) -> dict[str, Json]:
    """All of them by name."""
    return {name: example(name, now) for name in NAMES}
