"""From what a vLLM answers to readings: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_api.figures import Service
from scheduler_api.health import Health, Standstill, standing_words
from scheduler_api.kinds.base import NOT_TOLD, Condition, Reading
from scheduler_api.kinds.engine_state import NO_SLOT
from scheduler_api.kinds.fields import Json, count, items, mapping, text
from scheduler_api.kinds.histogram import WINDOW_S, Window
from scheduler_api.kinds.meter import Meter
from scheduler_api.kinds.polling import NotServing, check_welcome
from scheduler_api.kinds.units import unit
from scheduler_api.kinds.vllm_metrics import EngineMetrics, VllmMetrics, looks_like, parse
from scheduler_api.wire import Answer

WHY_NOT = "This server cannot switch policies: a vLLM's are set when it starts."
NO_SLOTS = "A vLLM does not report its slots; its engines tell of their requests."
NO_METRICS = "There is no /metrics at this address (it answers {status}); vLLM's own server offers it without a flag."
OTHERS = "Not supported: the metrics look like those of {whose}."
NOT_VLLM = "/metrics holds none of vLLM's names."
MODELS_NEED_KEY = "The model's name is under /v1, which needs a key."
NEVER_TOLD = {
    "slots": NO_SLOTS,
    "slot_rates": NO_SLOTS,
    "worst_stall_s": "Stalls are those of slots, which a vLLM does not report.",
    "iterations": "This server does not report its batches.",
    "policy": "A vLLM does not report its policies.",
    "phase": "A vLLM does not report phases.",
    "oldest": "A vLLM does not tell how long requests have waited.",
}
#: Why a unit's value is None, by whether its name is exported at all.
_NOT_EXPORTED = "This version of vLLM does not export it."
_NO_NUMBER = "What it exports is no number."
_NOT_YET = "Rates begin with the second look."
_NONE_LATELY = f"No request had it in the last {WINDOW_S:.0f} s."
_INFO = ("n_slots", "n_ctx", "n_batch", "n_ubatch", "n_threads", "kv_mode", "kv_from")


@dataclass(slots=True)
class EngineReader:
    """What one engine's counters did between looks."""

    prompt: Meter = field(default_factory=Meter)
    generated: Meter = field(default_factory=Meter)
    hits: Meter = field(default_factory=lambda: Meter(WINDOW_S))
    queries: Meter = field(default_factory=lambda: Meter(WINDOW_S))
    standstill: Standstill = field(default_factory=Standstill)
    histograms: dict[str, Window] = field(default_factory=lambda: {"ttft": Window(), "itl": Window(), "tpot": Window()})

    def read(self, told: EngineMetrics, t: float) -> None:
        before = self.prompt.last, self.generated.last
        for name in ("prompt", "generated", "hits", "queries"):
            getattr(self, name).add(t, told.values.get(name))
        self.standstill.note(t, work=has_work(told), progressed=before != (self.prompt.last, self.generated.last))
        for name, window in self.histograms.items():
            window.add(t, told.histograms.get(name, ()))

    def as_unit(self, engine: str, told: EngineMetrics, now: float) -> Json:
        values: Json = {name: told.values.get(name) for name in ("running", "waiting", "kv_use")}
        values |= {name: count(values[name]) for name in ("running", "waiting")}
        values |= {"prompt_tps": self.prompt.rate(), "gen_tps": self.generated.rate(), "prefix_hits": self._prefix_hits(told)}
        values |= {name: window.told() for name, window in self.histograms.items()}
        state, words, detail = Health.UP, "Serving" if has_work(told) else "Idle", ""
        if told.asleep:
            state, words = Health.SLEEPING, "Asleep"
        elif self.standstill.lasts(now):
            state, words = Health.NOT_SERVING, standing_words(now - (self.standstill.since or now))
            detail = f"{values['running'] or 0} run, {values['waiting'] or 0} wait"
        missing = {name: why for name, value in values.items() if value is None and (why := _why(name, told))}
        return unit(engine, "engine", state.value, words, detail=detail, missing=missing, model=told.model, **values)

    def _prefix_hits(self, told: EngineMetrics) -> float | None:
        """Of the tokens looked up in the last minute, the share that was cached. The oldest versions tell a share themselves."""
        hits, queries = self.hits.grown(), self.queries.grown()
        if hits is not None and queries:
            return round(hits / queries, 3)
        return told.values.get("hit_rate")


def has_work(told: EngineMetrics) -> bool:
    return any((told.values.get(name) or 0) > 0 for name in ("running", "waiting"))


def _why(name: str, told: EngineMetrics) -> str:
    """Why a unit's value is None."""
    source = {"prompt_tps": "prompt", "gen_tps": "generated", "prefix_hits": "queries"}.get(name, name)
    if source in told.histograms:
        return _NONE_LATELY if told.histograms[source] else _NO_NUMBER
    if source not in told.values:
        return _NOT_EXPORTED
    if told.values[source] is None:
        return _NO_NUMBER
    return _NONE_LATELY if name == "prefix_hits" else _NOT_YET


def check(answer: Answer, *, key_given: bool) -> None:
    """Raises NotServing for an answer that tells of the server as a whole."""
    check_welcome(answer, key_given=key_given)
    if answer.status >= 500:
        detail = "its engine died" if answer.status == 503 else answer.error_message()
        raise NotServing(Condition(Health.DOWN, f"answers {answer.status}", detail))


@dataclass(slots=True)
class VllmReader:
    """Remembers what one vLLM answered last."""

    key_given: bool
    build: str = ""
    model: str = ""
    n_ctx: int | None = None
    missing: Json = field(default_factory=dict)
    last: VllmMetrics | None = None
    last_at: float = 0.0
    engines: dict[str, EngineReader] = field(default_factory=dict)
    pending: list[Service] = field(default_factory=list)
    restarted: bool = False

    def health(self, answer: Answer, now: float) -> None:
        check(answer, key_given=self.key_given)

    def version(self, answer: Answer, now: float) -> None:
        told = text(_mapping(answer).get("version"), 60)
        self.build = f"vLLM {told}" if told else ""

    def models(self, answer: Answer, now: float) -> None:
        first = next(map(mapping, items(_mapping(answer).get("data"))), {})
        self.model, self.n_ctx = text(first.get("id")), count(first.get("max_model_len"))
        self.missing.pop("model", None)
        if answer.status in (401, 403):
            self.missing["model"] = MODELS_NEED_KEY

    def metrics(self, answer: Answer, now: float) -> None:
        if answer.status != 200:
            check(answer, key_given=self.key_given)
            return self._without(NO_METRICS.format(status=answer.status))
        body = answer.body.decode("utf-8", "replace")
        told = parse(body)
        if not told.engines:
            whose = looks_like(body)
            return self._without(OTHERS.format(whose=whose) if whose not in ("", "vLLM") else NOT_VLLM)
        self.missing.pop("metrics", None)
        before, since = self.last, self.last_at
        self.last, self.last_at = told, now
        if before is not None and has_restarted(before, told):
            self.restarted, self.engines, self.pending, before = True, {}, [], None
        for name, engine in told.engines.items():
            self.engines.setdefault(name, EngineReader()).read(engine, now)
        if before is not None:
            self.pending.append(Service(NO_SLOT, since, now, _grown("prompt", before, told), _grown("generated", before, told)))

    def _without(self, why: str) -> None:
        self.missing["metrics"] = why
        self.last, self.engines = None, {}

    def reading(self, now: float) -> Reading:
        """All that is known, with the services since the last reading."""
        told = self.last.engines if self.last is not None else {}
        units = [self.engines[name].as_unit(name, engine, now) for name, engine in told.items()]
        services, self.pending = [service for service in self.pending if service.prompt + service.generated > 0], []
        restarted, self.restarted = self.restarted, False
        waiting = [each["waiting"] for each in units]
        queue = {"depth": sum(waiting), "oldest_s": None} if units and None not in waiting else None
        return Reading(
            t=now,
            parts={
                "info": self._info(told, units),
                **NOT_TOLD,
                "switching": {"can": False, "why_not": WHY_NOT, "fields": {}},
                "queue": queue,
                "units": units,
                "missing": self._missing(queue),
            },
            services=services,
            restarted=restarted,
            working=any(map(has_work, told.values())) if told else None,
            asleep=bool(units) and all(each["state"] == Health.SLEEPING for each in units),
        )

    def _info(self, told: dict[str, EngineMetrics], units: list[Json]) -> Json:
        size = _total([engine.kv_size for engine in told.values()])
        parts = [(each["kv_use"], engine.kv_size) for each, engine in zip(units, told.values(), strict=True)]
        used = _total([None if use is None or total is None else int(use * total) for use, total in parts])
        return {
            "build": self.build,
            "model": self.model or next((engine.model for engine in told.values()), ""),
            "backend": "vllm",
            **dict.fromkeys(_INFO),
            "n_ctx_slot": self.n_ctx,
            "kv_used": used,
            "kv_size": size,
            "started_at": self.last.started_at if self.last is not None else None,
        }

    def _missing(self, queue: Json | None) -> Json:
        missing = NEVER_TOLD | self.missing
        if (why := self.missing.get("metrics")) is not None:
            return missing | dict.fromkeys(("queue", "units", "prompt_tps", "gen_tps"), why)
        return missing if queue is not None else missing | {"queue": _NOT_EXPORTED}


def has_restarted(before: VllmMetrics, now: VllmMetrics) -> bool:
    """Another process: its start time moved, or a counter went back."""
    if before.started_at is not None and now.started_at is not None and abs(now.started_at - before.started_at) > 1:
        return True
    return any(_went_back(before.engines[name], engine) for name, engine in now.engines.items() if name in before.engines)


def _went_back(before: EngineMetrics, now: EngineMetrics) -> bool:
    pairs = ((now.values.get(name), before.values.get(name)) for name in ("prompt", "generated"))
    return any(new is not None and old is not None and new < old for new, old in pairs)


def _grown(name: str, before: VllmMetrics, now: VllmMetrics) -> int:
    """Tokens counted in between, over the engines that were there before."""
    pairs = [
        (engine.values.get(name), before.engines[key].values.get(name))
        for key, engine in now.engines.items()
        if key in before.engines
    ]
    return int(sum(new - old for new, old in pairs if new is not None and old is not None))


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mapping(answer: Answer) -> Json:
    try:
        return mapping(answer.json()) if answer.status == 200 else {}
    except ValueError:
        return {}
