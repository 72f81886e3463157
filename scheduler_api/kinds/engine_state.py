"""From what an engine tells of itself to readings: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from scheduler_api.figures import Service
from scheduler_api.kinds.base import Reading
from scheduler_api.kinds.engine_tasks import fresh_tasks
from scheduler_api.kinds.fields import Json, count, items, mapping, number, text

#: Tokens whose slot is not known, because the iterations that computed them were missed.
NO_SLOT = -1

_SLOT_COUNTS = ("n_ctx", "n_prompt", "n_cached", "n_processed", "n_generated", "n_tokens")
_SLOT_TIMES = ("since", "submitted_at", "first_visit_at", "prompt_done_at", "first_token_at")
_SERVER_COUNTS = ("n_slots", "n_ctx", "n_ctx_slot", "n_batch", "n_ubatch", "n_threads")


def slot_of(raw: Json) -> Json:
    """A slot as frames carry it; `rate` comes later."""
    return {
        "id": count(raw.get("id")),
        "state": text(raw.get("state"), 20) or "idle",
        "task": count(raw.get("task")),
        "client": text(raw.get("client")),
        "group": text(raw.get("group")),
        **{name: count(raw.get(name)) for name in _SLOT_COUNTS},
        "n_predict": count(raw.get("n_predict")),
        **{name: number(raw.get(name)) for name in _SLOT_TIMES},
        "member": raw.get("member") is True,
        "waiting_for": text(raw.get("waiting_for")),
        "last_service_iteration": count(raw.get("last_service_iteration")),
        **({name: count(raw.get(name)) for name in ("n_drafted", "n_accepted")} if raw.get("n_drafted") else {}),
    }


def _pairs(raw: Any) -> list[list[int]]:
    """[slot, tokens] pairs; what is not one is left out."""
    found = []
    for pair in items(raw):
        if isinstance(pair, list) and len(pair) == 2:
            slot, tokens = count(pair[0]), count(pair[1])
            if slot is not None and tokens is not None:
                found.append([slot, tokens])
    return found


def _drafts(raw: Any) -> list[list[int]]:
    """[slot, drafted, accepted] of a batch; what is not one is left out."""
    found = []
    for one in items(raw):
        numbers = [count(value) for value in one] if isinstance(one, list) and len(one) == 3 else [None]
        if None not in numbers:
            found.append([number for number in numbers if number is not None])
    return found


def _skips(raw: Any) -> list[list[Any]]:
    found = [(count(pair[0]), text(pair[1])) for pair in items(raw) if isinstance(pair, list) and len(pair) == 2]
    return [[slot, why] for slot, why in found if slot is not None]


def iteration_of(raw: Json) -> Json | None:
    """An iteration as frames carry it; None when it has no number or no time."""
    i, t = count(raw.get("i")), number(raw.get("t"))
    if i is None or t is None:
        return None
    return {
        "i": i,
        "t": t,
        **{name: number(raw.get(name)) for name in ("plan_ms", "run_ms", "settle_ms")},
        "prompt": _pairs(raw.get("prompt")),
        "gen": _pairs(raw.get("gen")),
        "skipped": _skips(raw.get("skipped")),
        "held": [slot for value in items(raw.get("held")) if (slot := count(value)) is not None],
        "phase": text(raw.get("phase"), 20),
        "cohort": count(raw.get("cohort")),
        "sealed": raw.get("sealed") is True,
        "anchor": count(raw.get("anchor")),
        "cursor": count(raw.get("cursor")),
        "policy": count(raw.get("policy")),
        "queue": count(raw.get("queue")),
        "error": text(raw.get("error")),
        **({"drafted": drafted} if (drafted := _drafts(raw.get("drafted"))) else {}),
    }


def services_of(iteration: Json) -> list[Service]:
    """One for each slot of the batch, over the time that the batch ran."""
    start = iteration["t"]
    end = start + ((iteration["plan_ms"] or 0.0) + (iteration["run_ms"] or 0.0)) / 1000
    tokens: dict[int, tuple[int, int]] = {slot: (n, 0) for slot, n in iteration["prompt"]}
    for slot, n in iteration["gen"]:
        tokens[slot] = (tokens.get(slot, (0, 0))[0], n)
    return [Service(slot, start, end, prompt, generated) for slot, (prompt, generated) in tokens.items()]


def draft_of(server: Json) -> Json | None:
    """Whether the draft model that the engine was started with is loaded, and why not; None without one. Names no path."""
    draft = server.get("draft")
    if not isinstance(draft, dict):
        return None
    unreadable = draft.get("outcome") == "unreadable"
    why = "A file of the pair cannot be used; the engine's log says which." if unreadable else text(draft.get("text"), 1000)
    return {"loaded": draft.get("loaded") is True, "text": why}


def drafts_of(totals: Json) -> Json:
    """How many drafted tokens were checked since the start, and how many of them were right; nothing before the first."""
    drafted = count(totals.get("drafted_tokens"))
    return {"drafted": drafted, "accepted": count(totals.get("accepted_tokens"))} if drafted else {}


def info_of(state: Json) -> Json:
    server, kv = mapping(state.get("server")), mapping(state.get("kv"))
    return {
        "build": text(server.get("build")),
        "model": text(server.get("name")),
        "backend": text(server.get("backend"), 20),
        **{name: count(server.get(name)) for name in _SERVER_COUNTS},
        "draft": draft_of(server),
        "kv_mode": text(kv.get("mode"), 20) or None,
        "kv_from": text(kv.get("resolved_from"), 20) or None,
        "kv_used": count(kv.get("used")),
        "kv_size": count(kv.get("size")),
        **drafts_of(mapping(state.get("totals"))),
        "started_at": number(server.get("started_at")),
    }


def switching_of(capabilities: Json) -> Json:
    fields = mapping(capabilities.get("policy"))
    return {"can": bool(fields), "why_not": "" if fields else "This engine offers no policy to switch.", "fields": fields}


@dataclass(frozen=True, slots=True)
class _Totals:
    t: float
    prompt: int
    generated: int


@dataclass(slots=True)
class EngineReader:
    """Turns one engine's states into readings; remembers what was read, to see restarts and what was missed."""

    last_iteration: int | None = None
    last_task: int = 0
    started_at: float | None = None
    totals: _Totals | None = None
    iteration: int = 0

    def resume_after(self, backfill: int) -> int:
        """The iteration after which the stream is to go on: the last one seen, else `backfill` before the newest."""
        return self.last_iteration if self.last_iteration is not None else max(0, self.iteration - backfill)

    def snapshot(self, state: Json) -> Reading:
        """From GET /scheduler, the only one that carries the capabilities. Its iterations come with the next update."""
        restarted = self._note_start(state)
        parts = {"switching": switching_of(mapping(state.get("capabilities")))}
        return self._read(state, [], [], parts=parts, restarted=restarted)

    def update(self, data: Json) -> Reading:
        """From the data of one update event."""
        state = mapping(data.get("state"))
        restarted = self._note_start(state)
        iterations = self._fresh(items(data.get("iterations")))
        services = [service for iteration in iterations for service in services_of(iteration)]
        services = self._missed(state, services, gap=data.get("gap") is True) + services
        tasks = fresh_tasks(items(data.get("tasks")), self.last_task)
        self.last_task = tasks[-1]["n"] if tasks else self.last_task
        return replace(self._read(state, iterations, services, parts={}, restarted=restarted), tasks=tasks)

    def _read(
        self, state: Json, iterations: list[Json], services: list[Service], *, parts: Json, restarted: bool = False
    ) -> Reading:
        restarted = self._note_start(state) or restarted
        self.iteration = count(state.get("iteration")) or 0
        queue = mapping(state.get("queue"))
        return Reading(
            t=number(state.get("t")) or 0.0,
            parts=parts
            | {
                "info": info_of(state),
                "policy": state.get("policy") if isinstance(state.get("policy"), dict) else None,
                "phase": state.get("phase") if isinstance(state.get("phase"), dict) else None,
                "cursor": count(state.get("cursor")),
                "anchor": count(state.get("anchor")),
                "iteration": count(state.get("iteration")),
                "queue": {"depth": count(queue.get("depth")), "oldest_s": number(queue.get("oldest_s"))},
                "slots": _slots(state),
                "units": [],
                "missing": {},
            },
            iterations=iterations,
            services=services,
            restarted=restarted,
        )

    def _note_start(self, state: Json) -> bool:
        started, iteration = number(mapping(state.get("server")).get("started_at")), count(state.get("iteration"))
        moved = self.started_at is not None and started is not None and abs(started - self.started_at) > 0.001
        back = started is None and iteration is not None and self.last_iteration is not None and iteration < self.last_iteration
        self.started_at = started if started is not None else self.started_at
        if not (moved or back):
            return False
        self.last_iteration, self.last_task, self.totals = None, 0, None
        return True

    def _fresh(self, raw: list[Any]) -> list[Json]:
        """Those not seen yet, in order."""
        found = [iteration for value in raw if (iteration := iteration_of(mapping(value))) is not None]
        after = -1 if self.last_iteration is None else self.last_iteration
        fresh = [iteration for iteration in found if iteration["i"] > after]
        if any(later["i"] <= earlier["i"] for earlier, later in pairwise(fresh)):
            fresh = sorted({iteration["i"]: iteration for iteration in fresh}.values(), key=lambda each: int(each["i"]))
        if fresh:
            self.last_iteration = fresh[-1]["i"]
        return fresh

    def _missed(self, state: Json, services: list[Service], *, gap: bool) -> list[Service]:
        """After a gap, the tokens that the totals know of and the iterations do not, over the time of the gap."""
        raw, t = mapping(state.get("totals")), number(state.get("t")) or 0.0
        now = _Totals(t, count(raw.get("prompt_tokens")) or 0, count(raw.get("generated_tokens")) or 0)
        before, self.totals = self.totals, now
        if not gap or before is None:
            return []
        prompt = now.prompt - before.prompt - sum(service.prompt for service in services)
        generated = now.generated - before.generated - sum(service.generated for service in services)
        end = services[0].start if services else t
        return [Service(NO_SLOT, min(before.t, end), end, max(0, prompt), max(0, generated))]


def _slots(state: Json) -> list[Json]:
    slots = [slot_of(mapping(raw)) for raw in items(state.get("slots"))]
    return [slot for slot in slots if slot["id"] is not None]
