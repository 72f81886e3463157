"""Example states in the shape of docs/protocol.md, to look at pages without an engine: a small made-up server that moves.

`FakeServer` plays prompts and generation over slots, roughly as a scheduler would, so that slots, iterations, figures and marks
of one state agree with each other. `examples()` gives one of each kind of state a page must show.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler_api.history import fairness

CLIENTS = ("long-doc", "chat-warm", "eval-set", "agent")
FIELDS: dict[str, Any] = {
    "prefill_order": {
        "values": ["physical", "rotating"],
        "default": "physical",
        "meaning": "Whose prompt enters the next batch first",
        "takes_effect": "next iteration",
    },
    "rotation_start": {
        "values": ["after_last", "after_first"],
        "default": "after_first",
        "meaning": "Where a rotating pass starts: after the last or the first contributor of the pass before",
        "takes_effect": "next iteration",
    },
    "phase": {
        "values": ["continuous", "barrier"],
        "default": "continuous",
        "meaning": "Whether prompts and generation may share a batch",
        "takes_effect": "next iteration; what generates is drained first",
    },
}
STOCK_WHY = "This server cannot switch policies: it is a stock llama-server, whose order and phases are compiled in."
STOCK_MISSING = {
    "iterations": "This server does not report its batches.",
    "policy": "A stock llama-server has no policies to report.",
    "phase": "A stock llama-server does not report phases.",
    "worst_stall_s": "A stock llama-server does not tell when a slot was served last.",
}
Json = dict[str, Any]


@dataclass
class FakeServer:
    """`load` is the chance that an idle slot gets a task at an iteration."""

    pk: int
    name: str
    n_slots: int = 4
    order: str = "rotating"
    phase: str = "continuous"
    unified: bool = False
    backend: str = "llama"
    load: float = 0.25
    kind: str = "engine"
    prompt_tokens: tuple[int, int] = (800, 18_000)
    n_batch: int = 2048
    t: float = 1_764_500_000.0
    seed: int = 1
    reverts_in: float | None = None
    iteration: int = 46_000
    task: int = 9_100
    cursor: int = -1
    cohort: Json | None = None
    cohorts: int = 12
    sealed: bool = False
    generating: bool = False
    queue: list[float] = field(default_factory=list)
    slots: list[Json] = field(default_factory=list)
    iterations: deque[Json] = field(default_factory=lambda: deque(maxlen=120))
    series: dict[str, list[list[float]]] = field(default_factory=dict)
    seq: int = 800

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.n_ctx_slot = 65_536
        self.slots = [self._idle(pk) for pk in range(self.n_slots)]
        self.series = {name: [] for name in ("prompt_series", "gen_series", "queue_series", "stall_series")}
        self.marks: list[Json] = []
        self.started_at = self.t - 4000
        self.ended: list[Json] = []
        self.passed: deque[Json] = deque(maxlen=6000)  # iterations, further back than a state tells of

    def _idle(self, pk: int) -> Json:
        return {
            "id": pk, "state": "idle", "since": self.t, "task": None, "client": "", "group": "completion",
            "n_ctx": self.n_ctx_slot, "n_prompt": 0, "n_cached": 0, "n_processed": 0, "n_generated": 0,
            "n_predict": 0, "n_tokens": 0,
            "submitted_at": None,
            "first_visit_at": None, "prompt_done_at": None, "first_token_at": None, "member": False, "waiting_for": "",
            "last_service_iteration": None, "rate": None,
        }  # fmt: skip

    def _launch(self, slot: Json) -> None:
        self.task += 1
        n_prompt = self.random.randint(*self.prompt_tokens)
        cached = int(n_prompt * self.random.choice((0, 0, 0.4, 0.9)))
        slot |= self._idle(slot["id"]) | {
            "state": "waiting", "since": self.t, "task": self.task, "client": CLIENTS[self.task % 4], "n_prompt": n_prompt,
            "n_cached": cached, "n_predict": self.random.randint(20, 90), "n_tokens": cached, "submitted_at": self.t,
            "member": self.phase == "barrier" and self.cohort is not None and not self.sealed,
        }  # fmt: skip
        if slot["member"]:
            self.cohort["members"].append(slot["id"])  # type: ignore[index]

    def _end(self, slot: Json) -> None:
        """Keeps the slot's task as the engine tells of ended ones."""
        names = ("task", "client", "group", "n_prompt", "n_cached", "n_generated", "submitted_at", "first_visit_at")
        self.ended.append({
            **{name: slot[name] for name in (*names, "prompt_done_at", "first_token_at")},
            "n": len(self.ended) + 1, "i": self.iteration, "slot": slot["id"], "reason": "limit", "error": "",
            "assigned_at": slot["submitted_at"], "finished_at": self.t, "skipped_s": 0.0, "paused_s": 0.0, "worst_gap_s": 0.1,
        })  # fmt: skip

    def _left(self, slot: Json) -> int:
        return int(slot["n_prompt"] - slot["n_cached"] - slot["n_processed"])

    def step(self) -> None:
        """One iteration."""
        for slot in self.slots:
            if slot["state"] == "idle" and self.random.random() < self.load:
                self._launch(slot)
        self.queue = [t for t in self.queue if self.t - t < 6.0]
        if self.random.random() < self.load / 4 and len(self.queue) < 4:
            self.queue.append(self.t)
        if self.phase == "barrier":
            self._cohort()
        if all(slot["state"] == "idle" for slot in self.slots):
            self.t += 0.1
            self._count(0.0, 0.0)
            return
        prompt, gen, skipped, held = self._batch()
        self.iteration += 1
        duration = 0.004 + sum(n for _, n in prompt) * 0.0002 + 0.03 * bool(gen)
        start, self.t = self.t, self.t + duration
        self._settle(dict(prompt), dict(gen), held, duration)
        told = {
            "i": self.iteration, "t": round(start, 3), "plan_ms": 0.05, "run_ms": round(duration * 1000, 1), "settle_ms": 0.03,
            "prompt": [list(one) for one in prompt], "gen": [list(one) for one in gen],
            "skipped": skipped, "held": held, "phase": self._phase_name(),
            "cohort": self.cohort["id"] if self.cohort else None, "sealed": self.sealed, "anchor": None, "cursor": self.cursor,
            "policy": 41, "queue": len(self.queue), "error": "",
        }  # fmt: skip
        self.iterations.append(told)
        self.passed.append(told)
        self._count(sum(n for _, n in prompt) / duration, sum(n for _, n in gen) / duration)

    def _phase_name(self) -> str:
        if self.phase == "continuous":
            return "continuous"
        return "idle" if self.cohort is None else "tg" if self.generating else "pp"

    def _cohort(self) -> None:
        busy = [slot for slot in self.slots if slot["state"] != "idle"]
        if self.cohort is not None and not any(slot["member"] for slot in busy):
            self.cohort, self.sealed, self.generating = None, False, False
        if self.cohort is None and busy:
            self.cohorts += 1
            self.cohort = {
                "id": self.cohorts,
                "members": [slot["id"] for slot in busy],
                "completed": [],
                "age_s": 0.0,
                "at": self.t,
            }
            for slot in busy:
                slot["member"] = True
        if self.cohort is not None:
            self.cohort["age_s"] = round(self.t - self.cohort["at"], 1)
            members = [slot for slot in busy if slot["member"]]
            done = all(self._left(slot) == 0 for slot in members)
            self.sealed, self.generating = self.sealed or done, self.generating or done

    def _may_fill(self, slot: Json) -> bool:
        if slot["state"] == "idle" or self._left(slot) <= 0:
            return False
        return self.phase == "continuous" or (slot["member"] and not self.generating)

    def _batch(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[list[Any]], list[int]]:
        ready = [slot for slot in self.slots if slot["state"] != "idle" and self._left(slot) == 0]
        generate = ready if self.phase == "continuous" else [slot for slot in ready if self.generating and slot["member"]]
        held = [slot["id"] for slot in ready if slot not in generate]
        gen = [(slot["id"], 1) for slot in generate]
        prompt: list[tuple[int, int]] = []
        skipped: list[list[Any]] = []
        room = self.n_batch - len(gen)
        start = 0 if self.order == "physical" or self.unified else self.cursor + 1
        for index in range(self.n_slots):
            slot = self.slots[(start + index) % self.n_slots]
            if not self._may_fill(slot):
                continue
            take = min(room, self._left(slot))
            if take:
                prompt.append((slot["id"], take))
                self.cursor = slot["id"]
                room -= take
            else:
                skipped.append([slot["id"], f"batch full, slot {prompt[0][0]} took {prompt[0][1]} of {self.n_batch}"])
        return prompt, gen, skipped, held

    def _settle(self, prompt: dict[int, int], gen: dict[int, int], held: list[int], duration: float) -> None:
        for slot in self.slots:
            pk, was = slot["id"], slot["state"]
            slot["rate"] = None
            if pk in prompt:
                slot["n_processed"] += prompt[pk]
                slot["n_tokens"] += prompt[pk]
                slot["first_visit_at"] = slot["first_visit_at"] or self.t - duration
                slot["state"], slot["rate"] = "prompt", round(prompt[pk] / duration, 1)
                slot["last_service_iteration"] = self.iteration
                slot["waiting_for"] = ""
                if self._left(slot) == 0:
                    slot["prompt_done_at"] = self.t
                    if self.cohort:
                        self.sealed = True
                        self.cohort["completed"].append(pk)
            elif pk in gen:
                slot["n_generated"] += 1
                slot["n_tokens"] += 1
                slot["first_token_at"] = slot["first_token_at"] or self.t
                slot["state"], slot["rate"], slot["waiting_for"] = "generating", round(1 / duration, 1), ""
            elif pk in held:
                behind = [other for other in self.slots if other["member"] and self._left(other) > 0]
                done = (1 - self._left(behind[0]) / behind[0]["n_prompt"]) * 100 if behind else 100
                slot["state"] = "held"
                slot["waiting_for"] = (
                    f"held: cohort {self.cohorts} waits for slot {behind[0]['id']} ({done:.0f} %)" if behind else ""
                )
            elif slot["state"] != "idle":
                out = self.phase == "barrier" and not slot["member"]
                slot["state"] = "queued" if out else "waiting"
                first = next(iter(prompt.items()), (0, 0))
                slot["waiting_for"] = (
                    f"queued: cohort {self.cohorts} is sealed, joins {self.cohorts + 1}"
                    if out
                    else f"waits: batch full, slot {first[0]} took {first[1]} of {self.n_batch}"
                )
            if slot["state"] == "generating" and slot["n_generated"] >= slot["n_predict"]:
                self._end(slot)
                slot |= self._idle(pk)
            if slot["state"] != was:
                slot["since"] = self.t

    def _held_words(self, behind: list[Json]) -> str:
        if not behind:
            return ""
        done = (1 - self._left(behind[0]) / behind[0]["n_prompt"]) * 100
        return f"held: cohort {self.cohorts} waits for slot {behind[0]['id']} ({done:.0f} %)"

    def _count(self, prompt_tps: float, gen_tps: float) -> None:
        waits = [self.t - (slot["since"] or self.t) for slot in self.slots if slot["state"] in ("waiting", "held")]
        for name, value in (
            ("prompt_series", prompt_tps), ("gen_series", gen_tps), ("queue_series", float(len(self.queue))),
            ("stall_series", max(waits, default=0.0)),
        ):  # fmt: skip
            series = self.series[name]
            if not series or self.t - series[-1][0] >= 2.0:
                series.append([round(self.t, 1), round(value, 1)])
            del series[:-75]

    def policy(self) -> Json:
        wanted = {"prefill_order": self.order, "rotation_start": "after_first", "phase": self.phase}
        effective = wanted | ({"prefill_order": "physical"} if self.unified else {})
        why = "unified KV keeps physical order: interleaving would fill the shared pool with half-done prompts"
        temporary = self.reverts_in is not None
        return {
            "version": 41, "requested": wanted, "effective": effective,
            "reasons": {"prefill_order": why} if wanted != effective else {}, "effective_from_iteration": self.iteration - 300,
            "changed_at": self.t - 90, "reverts_at": self.t + self.reverts_in if self.reverts_in is not None else None,
            "reverts_to": wanted | {"phase": "continuous"} if temporary else None, "reason": "streams stutter during ingest",
        }  # fmt: skip

    def state(self) -> Json:
        self.seq += 1
        engine = self.kind == "engine"
        cohort = {key: value for key, value in self.cohort.items() if key != "at"} if self.cohort else None
        state = {
            "seq": self.seq,
            "t": self.t,
            "server": {"id": self.pk, "name": self.name, "kind": self.kind, "url": "http://127.0.0.1:9"},
            "health": {"state": "up", "text": "Serving", "detail": "", "since": self.t - 4000, "seen_at": self.t},
            "info": self._info(engine),
            "policy": self.policy() if engine else None,
            "switching": {"can": engine, "why_not": "" if engine else STOCK_WHY, "fields": FIELDS if engine else {}},
            "phase": {"name": self._phase_name(), "sealed": self.sealed, "cohort": cohort} if engine else None,
            "cursor": self.cursor if engine else None,
            "anchor": None,
            "iteration": self.iteration if engine else None,
            "queue": {"depth": len(self.queue), "oldest_s": round(self.t - self.queue[0], 1) if self.queue else 0.0},
            "figures": self._figures(engine),
            "slots": self.slots,
            "iterations": list(self.iterations) if engine else [],
            "marks": self.marks if engine else [],
            "tasks": self.ended[-120:] if engine else [],
            "fairness": self.fairness() if engine else None,
            "missing": {} if engine else STOCK_MISSING,
        }
        return copy.deepcopy(state)

    def fairness(self) -> Json:
        since = self.t - 60.0
        iterations = [each for each in self.passed if each["t"] >= since]
        return fairness.fairness(
            iterations, [task for task in self.ended if task["finished_at"] >= since], self.slots, since, self.t
        )

    def _info(self, engine: bool) -> Json:
        told = {
            "build": "cyllama 0.7.0, llama.cpp b11669" if engine else "b11669",
            "model": "tiny-random-f16",
            "backend": self.backend if engine else None,
            "n_slots": self.n_slots,
            "n_ctx_slot": self.n_ctx_slot,
        }
        own = {
            "n_ctx": self.n_ctx_slot * self.n_slots,
            "n_batch": self.n_batch,
            "n_ubatch": 512,
            "n_threads": 2,
            "kv_mode": "unified" if self.unified else "split",
            "kv_from": "auto" if self.unified else "flag",
            "kv_used": sum(slot["n_tokens"] for slot in self.slots),
            "kv_size": self.n_ctx_slot * self.n_slots,
            "started_at": self.started_at,
        }
        return told | (own if engine else dict.fromkeys(own))

    def _figures(self, engine: bool) -> Json:
        last = {name: (series[-1][1] if series else 0.0) for name, series in self.series.items()}
        stall = max((value for _, value in self.series["stall_series"][-30:]), default=0.0)
        return self.series | {
            "prompt_tps": last["prompt_series"],
            "gen_tps": last["gen_series"],
            "worst_stall_s": stall if engine else None,
            "worst_stall_slot": 1 if stall and engine else None,
            "stall_series": self.series["stall_series"] if engine else [],
        }

    def mark(self, text: str, by: str) -> None:
        self.marks = [
            *self.marks[-9:],
            {"t": self.t, "iteration": self.iteration, "kind": "policy", "text": text, "by": by, "version": 41},
        ]

    def play(self, steps: int) -> FakeServer:
        for _ in range(steps):
            self.step()
        return self

    def shift(self, now: float) -> FakeServer:
        """Moves the made-up past so that it ends at `now`."""
        delta = now - self.t
        self.t = now
        self.started_at += delta
        self.queue = [t + delta for t in self.queue]
        for slot in self.slots:
            for key in ("since", "submitted_at", "first_visit_at", "prompt_done_at", "first_token_at"):
                slot[key] = slot[key] + delta if slot[key] is not None else None
        rows = {id(row): row for row in (*self.iterations, *self.passed, *self.marks)}
        for row in rows.values():
            row["t"] += delta
        for task in self.ended:
            for key in ("submitted_at", "assigned_at", "first_visit_at", "prompt_done_at", "first_token_at", "finished_at"):
                task[key] = task[key] + delta if task[key] is not None else None
        for series in self.series.values():
            for point in series:
                point[0] += delta
        if self.cohort:
            self.cohort["at"] += delta
        return self


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


def vllm(pk: int, now: float) -> Json:
    """Two engines behind one address, told apart by its metrics: no slots, no batches."""
    base = FakeServer(pk, "vllm", kind="vllm", seed=2).play(40).shift(now).state()
    unit = {
        "id": "0", "kind": "engine", "model": "qwen", "state": "up", "text": "Serving", "detail": "", "running": 3, "waiting": 2,
        "n_slots": None, "n_ctx_slot": None, "kv_use": 0.42, "prefix_hits": 0.8, "prompt_tps": 512.0, "gen_tps": 90.4,
        "ttft": {"p50": 0.3, "p95": 0.9, "p99": 1.0, "n": 41, "over_s": 59.8},
        "itl": {"p50": 0.03, "p95": 0.05, "p99": 0.1, "n": 900, "over_s": 59.8},
        "tpot": None, "missing": {},
    }  # fmt: skip
    stuck = {"state": "not_serving", "text": "Up but not serving, no token for 3 min", "detail": "1 requests run, 5 wait"}
    other = unit | stuck | {"id": "1", "running": 1, "waiting": 5, "gen_tps": 0.0, "ttft": None, "itl": None}
    other["missing"] = {"ttft": "No request got its first token in the last minute."}
    return base | {
        "units": [unit, other],
        "slots": [],
        "missing": STOCK_MISSING | {"slots": "vLLM has no slots; its engines are shown above."},
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


def examples(now: float) -> dict[str, Json]:
    """State by name; ids count from 1 in this order."""
    states = {name: make(pk).shift(now).state() for pk, (name, make) in enumerate(EXAMPLES.items(), start=1)}
    states["vllm"] = vllm(len(states) + 1, now)
    spare = len(states) + 1
    for pk, (health, text, detail) in enumerate(
        (
            ("down", "Down", "connection refused"),
            ("unauthorised", "Unauthorised", "401 on /slots; its key is missing here"),
            ("silent", "Busy, no answer", "no answer for 42 s, last seen in a prompt on slot 0"),
            ("loading", "Loading the model", "it answers 503 until then"),
        ),
        start=spare,
    ):
        base = FakeServer(pk, health, kind="engine" if health == "down" else "llama_server", seed=pk).play(
            0 if health == "loading" else 40
        )
        states[health] = down(base.shift(now).state(), health, text, detail, 252.0 if health == "down" else 42.0)
    return states
