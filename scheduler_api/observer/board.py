"""From reports to the state that pages show: no I/O, and no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler_api.figures import Figures, Rates, Work
from scheduler_api.frames import KEPT_ITERATIONS, State
from scheduler_api.health import ANSWERS, SEEN, Health, HealthRecord, Standstill
from scheduler_api.kinds.base import NOT_TOLD, Condition, Reading, Report
from scheduler_api.kinds.fields import Json, count, mapping, text
from scheduler_api.observer.marks import KEPT_MARKS, policy_mark, restart_mark
from scheduler_api.observer.memory import Memory

#: A server's clock this far off the console's is taken as another clock; nearer, the difference is the way's delay.
CLOCK_TOLERANCE_S = 2.0
#: How exactly "last seen" is told while a server is well: to the moment would be a frame for each answer.
SEEN_STEP_S = 5.0

_RUNNING = frozenset({"prompt", "generating"})
_INFO = (
    *("build", "model", "backend", "n_slots", "n_ctx", "n_ctx_slot", "n_batch", "n_ubatch", "n_threads"),
    *("kv_mode", "kv_from", "kv_used", "kv_size", "started_at"),
)
_TEXTS = frozenset({"build", "model", "backend"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The registry's part of a state."""

    id: int
    name: str
    kind: str
    url: str

    def as_json(self) -> Json:
        return {"id": self.id, "name": self.name, "kind": self.kind, "url": self.url}


@dataclass(slots=True)
class Board:
    """Everything known of one server. `apply` reports as they come; `state` at any time."""

    identity: Identity
    observer: str = ""  # who watches it, "host:pid"
    health: HealthRecord = field(default_factory=HealthRecord)
    parts: Json = field(default_factory=lambda: {"switching": {"can": False, "why_not": "", "fields": {}}, **NOT_TOLD})
    info: Json = field(default_factory=lambda: {name: "" if name in _TEXTS else None for name in _INFO})
    missing: Json = field(default_factory=dict)
    iterations: list[Json] = field(default_factory=list)
    marks: list[Json] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    memory: Memory = field(default_factory=Memory)
    working: bool | None = None
    clock_offset: float = 0.0
    seen_shown: float | None = None
    standstill: Standstill = field(default_factory=Standstill)

    def restore(self, stored: State) -> None:
        """Goes on from a state that an earlier observer left: its marks, and what it takes to notice a restart since."""
        self.marks = [mark for mark in stored.get("marks") or [] if isinstance(mark, dict)][-KEPT_MARKS:]
        self.info |= mapping(stored.get("info"))
        self.parts["policy"] = stored.get("policy")

    def apply(self, report: Report, now: float) -> None:
        if isinstance(report, Condition):
            self._enter(report, now)
        else:
            self._read(report, now)

    def _enter(self, condition: Condition, now: float) -> None:
        self.health.enter(condition.state, now, condition.reason, condition.detail, seen=condition.seen)
        self.standstill.since = None  # what goes on while it does not answer is not known
        if condition.state in SEEN:
            return
        policy = self.parts["policy"]  # kept to tell a switch that happens meanwhile; `state` does not show it
        self.parts |= NOT_TOLD | {"policy": policy}
        self.working = None
        self.figures.forget_work()
        self.memory.recorder.lost()

    def _read(self, reading: Reading, now: float) -> None:
        offset = reading.t - now
        self.clock_offset = offset if abs(offset) > CLOCK_TOLERANCE_S else 0.0
        info = mapping(reading.parts.get("info"))
        if reading.restarted or self._another_process(info):
            self._restart(reading.t, reading.who)
        elif (mark := policy_mark(self.parts["policy"], reading.parts.get("policy"), reading.t)) is not None:
            self._mark(mark)
        self.parts |= {name: value for name, value in reading.parts.items() if name not in ("info", "missing")}
        self.info |= info
        self.missing = mapping(reading.parts.get("missing"))
        self.working = reading.working
        self.figures.update(self._work(), reading.services)
        after = self.iterations[-1]["i"] if self.iterations else -1
        fresh = [iteration for iteration in reading.iterations if iteration["i"] > after]
        self.iterations = [*self.iterations, *fresh][-KEPT_ITERATIONS:] if fresh else self.iterations
        self.memory.read(reading, fresh, self.parts["slots"])
        self.standstill.note(now, work=self._has_work(), progressed=reading.progressed or bool(reading.services))
        if reading.asleep:
            self.health.enter(Health.SLEEPING, now, seen=True)
        else:
            self._judge(now, seen=True)

    def _another_process(self, info: Json) -> bool:
        before, now = self.info.get("started_at"), info.get("started_at")
        return before is not None and now is not None and abs(now - before) > 0.001

    def _restart(self, t: float, who: str) -> None:
        self.iterations = []
        self.figures.forget_work()
        self.memory.restart(t)
        self.standstill.since = None
        self._mark(restart_mark(t, who))

    def _has_work(self) -> bool:
        queued = (count(mapping(self.parts["queue"]).get("depth")) or 0) > 0
        return queued or bool(self.working) or any(slot["state"] != "idle" for slot in self.parts["slots"])

    def _judge(self, now: float, *, seen: bool) -> None:
        """Up, or up but not serving when work has stood still for too long, as a whole or in one of its units."""
        self.health.stood_since = self.standstill.since
        if self.standstill.lasts(now):
            self.health.enter(Health.NOT_SERVING, now, detail=self._what_waits(), seen=seen)
        elif (unit := next((unit for unit in self.parts["units"] if unit["state"] == Health.NOT_SERVING), None)) is not None:
            reason = f"{unit['kind'].capitalize()} {unit['id']} is up but not serving"
            self.health.enter(Health.NOT_SERVING, now, reason, unit["detail"], seen=seen)
        else:
            self.health.enter(Health.UP, now, seen=seen)

    def _what_waits(self) -> str:
        busy = sum(slot["state"] != "idle" for slot in self.parts["slots"])
        running = sum(unit["running"] or 0 for unit in self.parts["units"]) if not busy else 0
        depth = count(mapping(self.parts["queue"]).get("depth"))
        told = [
            f"{busy} of its slots {'has' if busy == 1 else 'have'} work" if busy else "",
            f"{running} {'request runs' if running == 1 else 'requests run'}" if running else "",
            f"{depth} {'waits' if depth == 1 else 'wait'}" if depth else "",
        ]
        return ", ".join(part for part in told if part) or "work is there"

    def _mark(self, mark: Json) -> None:
        self.marks = [*self.marks, mark][-KEPT_MARKS:]
        self.memory.recorder.mark(mark, mark["t"])

    def name_author(self, version: int, name: str) -> None:
        """Puts the name from the audit on the newest mark of that policy version."""
        newest = max((i for i, mark in enumerate(self.marks) if mark.get("version") == version), default=None)
        if newest is not None:
            self.marks = [mark | {"by": name} if i == newest else mark for i, mark in enumerate(self.marks)]

    def _work(self) -> dict[int, Work]:
        return {slot["id"]: _work_of(slot) for slot in self.parts["slots"] if slot["state"] != "idle"}

    # What pages see

    def _tells_work(self) -> bool:
        """Whether the server tells of its work in any way."""
        return "slots" not in self.missing or self.working is not None

    def busy(self) -> bool | None:
        if "slots" in self.missing:
            return self.working
        return any(slot["state"] != "idle" for slot in self.parts["slots"]) if self.health.state in SEEN else None

    def state(self, now: float, seq: int) -> State:
        seen = self.health.state in SEEN
        if self.health.state in (Health.UP, Health.NOT_SERVING):
            self._judge(now, seen=False)
        if self.health.state in ANSWERS:
            depth = count(mapping(self.parts["queue"]).get("depth"))
            told = "slots" not in self.missing
            self.figures.watch(now + self.clock_offset, depth, tokens=self._tells_work(), stalls=told)
        self.memory.look(now + self.clock_offset, self._why_unknown(now), self.parts, self.info, self.missing)
        rates = self.figures.rates(now + self.clock_offset)
        return {
            "seq": seq,
            "t": round(now, 3),
            "server": self.identity.as_json(),
            "observer": self.observer,
            "health": self._health(now),
            "info": dict(self.info),
            "policy": self.parts["policy"] if seen else None,
            "switching": self.parts["switching"] if seen else self._cannot_switch(now),
            **{name: self.parts[name] for name in ("phase", "cursor", "anchor", "iteration", "queue", "units")},
            "figures": self._figures(now + self.clock_offset, rates),
            "slots": [slot | {"rate": _rounded(rates.slots.get(slot["id"]))} for slot in self.parts["slots"]],
            "iterations": self.iterations,
            "tasks": self.memory.tasks,
            "fairness": self.memory.fairness,
            "marks": self.marks,
            "missing": self._missing(now, seen=seen),
        }

    def _why_unknown(self, now: float) -> str:
        """Why nothing is known of its work; "" where something is."""
        if self.health.state not in SEEN:
            return self.health.text(now, None)
        return "" if self._tells_work() else text(self.missing["slots"])

    def _health(self, now: float) -> Json:
        shown = self.health.as_json(now, self.busy())
        if self.health.state in ANSWERS and self.health.seen_at is not None:
            if self.seen_shown is None or self.health.seen_at - self.seen_shown >= SEEN_STEP_S:
                self.seen_shown = self.health.seen_at
            shown["seen_at"] = self.seen_shown
        return shown

    def _cannot_switch(self, now: float) -> Json:
        kept = mapping(self.parts["switching"])
        why_not = text(kept.get("why_not")) or f"{self.health.text(now, None)}."
        return {"can": False, "why_not": why_not, "fields": mapping(kept.get("fields"))}

    def _unseen(self, now: float) -> Json:
        """Nothing is known of the work of a server that is not seen, and this is why."""
        return dict.fromkeys(("slots", "queue", "policy", "phase"), f"{self.health.text(now, None)}.")

    def _missing(self, now: float, *, seen: bool) -> Json:
        missing = (self.missing if seen else self.missing | self._unseen(now)) | self.memory.missing
        return {"worst_stall_s": missing["slots"]} | missing if "slots" in missing else missing  # stalls are those of slots

    def _figures(self, now: float, rates: Rates) -> dict[str, Any]:
        known = self.health.state in SEEN and self._tells_work()
        slot, stall = self.figures.worst_stall(now)
        stalls_known = known and "slots" not in self.missing
        return {
            "prompt_tps": _rounded(rates.prompt) if known else None,
            "gen_tps": _rounded(rates.generated) if known else None,
            "worst_stall_s": round(stall, 2) if stalls_known else None,
            "worst_stall_slot": slot if stalls_known else None,
            **self.figures.series(now),
        }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _work_of(slot: Json) -> Work:
    since = slot["submitted_at"] if slot["submitted_at"] is not None else slot["since"]
    return Work(slot["task"], since or 0.0, slot["state"] in _RUNNING)
