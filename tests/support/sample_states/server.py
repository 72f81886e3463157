"""A made-up server: slots that are played, told in the shape of docs/protocol.md."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from scheduler_api.history import fairness
from tests.support.sample_states.playing import PlayedSlots
from tests.support.sample_states.words import FIELDS, STOCK_MISSING, STOCK_WHY, Json


@dataclass
class FakeServer(PlayedSlots):
    """A server as the observer would tell of it."""

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
            "observer": "atlas:4711",
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
