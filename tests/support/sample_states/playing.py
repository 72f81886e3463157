"""Slots at work: prompts and generation played over them, roughly as a scheduler would."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.support.sample_states.words import CLIENTS, Json


@dataclass
class PlayedSlots:
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
                slot["state"] = "held"
                slot["waiting_for"] = self._held_words(behind)
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
