"""A llama-server that routes to several models, each in a process of its own.

The router tells of all models by /models, which wakes none. Those that are loaded are asked side by side, each as if it were a
server of its own, with `?model=`; the others are never asked. All share one pace: at most four requests a second in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from scheduler_api import wire
from scheduler_api.figures import Service
from scheduler_api.health import Health, HealthRecord, Standstill
from scheduler_api.kinds.base import NOT_TOLD, Condition, Reading, Report
from scheduler_api.kinds.engine_state import NO_SLOT
from scheduler_api.kinds.fields import Json, items, mapping, text, whole
from scheduler_api.kinds.llama_state import NEVER_TOLD, WHY_NOT, check, json_of
from scheduler_api.kinds.meter import Meter
from scheduler_api.kinds.polling import Due, NotServing, Poller
from scheduler_api.kinds.units import unit

MODELS_EVERY_S = 2.0
#: Beyond this many loaded models the others are listed, not asked.
MOST_WATCHED = 32
NONE_LOADED = "No model is loaded; slots appear when a request loads one."
NOT_WATCHED = f"Only {MOST_WATCHED} loaded models are asked for their slots."
_WORDS = {
    "sleeping": (Health.SLEEPING.value, "Asleep"),
    "loading": (Health.LOADING.value, "Loading the model"),
    "downloading": (Health.LOADING.value, "Downloading"),
    "downloaded": ("unloaded", "Downloaded, not loaded"),
    "unloaded": ("unloaded", "Not loaded"),
}

type WatchModel = Callable[[str, bool], AsyncGenerator[Report, None]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A model as /models lists it. `status` is the router's word; `ended` tells of a process that ended otherwise than well."""

    name: str
    status: str
    ended: str = ""


def listed_of(raw: object) -> list[Listed]:
    """The models, in the router's order; what has no id is left out.

    `failed` stands beside `unloaded` after a deliberate unload too, so it is told as what it is: how the last process ended.
    """
    found = []
    for entry in map(mapping, items(mapping(raw).get("data"))):
        status = mapping(entry.get("status"))
        code = whole(status.get("exit_code"))
        ended = f"its last process ended with code {code}" if status.get("failed") is True and code is not None else ""
        if name := text(entry.get("id")):
            found.append(Listed(name, text(status.get("value"), 40) or "unknown", ended))
    return list({model.name: model for model in found}.values())


@dataclass(slots=True)
class Watched:
    """What one loaded model told last, and what its services add up to."""

    name: str
    health: HealthRecord = field(default_factory=HealthRecord)
    last: Reading | None = None
    prompt: Meter = field(default_factory=Meter)
    generated: Meter = field(default_factory=Meter)
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    services: list[Service] = field(default_factory=list)
    progressed: bool = False
    restarted: bool = False
    standstill: Standstill = field(default_factory=Standstill)

    def take(self, report: Report, now: float) -> None:
        if isinstance(report, Condition):
            self.health.enter(report.state, now, report.reason, report.detail, seen=report.seen)
            self.standstill.since = None
            return
        self.last = report
        self._judge(report, now)
        self.services += report.services
        self.progressed |= report.progressed
        self.restarted |= report.restarted
        self.sums[0] += sum(service.prompt for service in report.services)
        self.sums[1] += sum(service.generated for service in report.services)
        self.prompt.add(now, self.sums[0])
        self.generated.add(now, self.sums[1])

    def _judge(self, report: Reading, now: float) -> None:
        """Asleep, up, or up but not serving."""
        busy = any(slot["state"] != "idle" for slot in report.parts["slots"])
        work = busy or bool(report.working) or (self.waiting or 0) > 0
        self.standstill.note(now, work=work, progressed=report.progressed or bool(report.services))
        self.health.stood_since = self.standstill.since
        stands = self.standstill.lasts(now)
        state = Health.SLEEPING if report.asleep else Health.NOT_SERVING if stands else Health.UP
        self.health.enter(state, now, detail=f"{self.waiting} wait" if stands and self.waiting else "", seen=True)

    @property
    def slots(self) -> list[Json]:
        """Those it told last, also while it is busy and silent; none when it is known to be gone."""
        seen = self.health.state in (Health.UP, Health.SILENT, Health.NOT_SERVING)
        return self.last.parts["slots"] if self.last is not None and seen else []

    @property
    def busy(self) -> bool | None:
        if "slots" in self.missing or self.last is None:
            return self.last.working if self.last is not None else None
        return any(slot["state"] != "idle" for slot in self.slots)

    @property
    def missing(self) -> Json:
        return self.last.parts["missing"] if self.last is not None else {}

    @property
    def waiting(self) -> int | None:
        queue = self.last.parts["queue"] if self.last is not None else None
        return None if queue is None else queue["depth"]

    def as_unit(self, now: float) -> Json:
        info = self.last.parts["info"] if self.last is not None else {}
        known = self.last is not None and "slots" not in self.missing
        return unit(
            self.name,
            "model",
            self.health.state.value,
            self.health.text(now, self.busy),
            detail=self.health.detail,
            missing={name: why for name, why in self.missing.items() if name not in NEVER_TOLD},
            model=self.name,
            running=sum(slot["state"] != "idle" for slot in self.slots) if known else None,
            waiting=self.waiting,
            n_slots=info.get("n_slots"),
            n_ctx_slot=info.get("n_ctx_slot"),
            prompt_tps=self.prompt.rate(),
            gen_tps=self.generated.rate(),
        )


@dataclass(slots=True)
class RouterWatch:
    """Lists the models and watches the loaded ones. `watch_model(query, quiet)` gives the reports of one, without end."""

    poller: Poller
    key_given: bool
    clock: Callable[[], float]
    watch_model: WatchModel
    quiet: bool
    models: list[Listed] = field(default_factory=list)
    watched: dict[str, Watched] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    slot_ids: dict[tuple[str, int], int] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def serving(self, info: Json) -> AsyncGenerator[Report, None]:
        """Until something goes wrong with the router itself; `info` is what its /props told. Raises NoAnswer or NotServing."""
        due = Due(MODELS_EVERY_S)
        try:
            while True:
                if due.now():
                    async with aclosing(self.poller.ask("/models", self._list, self.clock)) as waiting:
                        async for condition in waiting:
                            yield condition
                    due.later()
                    await self._follow()
                for task in self.tasks.values():
                    if task.done():
                        task.result()
                self.news.clear()
                yield self.reading(info, self.clock())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), MODELS_EVERY_S)
        finally:
            await self._end(list(self.tasks))

    def _list(self, answer: wire.Answer, now: float) -> None:
        check(answer, key_given=self.key_given)
        if answer.status != 200:
            raise NotServing(Condition(Health.DOWN, f"is a router whose /models answers {answer.status}", answer.error_message()))
        self.models = listed_of(json_of(answer))
        if any(model.status == "sleeping" for model in self.models):
            self.quiet = True  # its models sleep when left alone

    async def _follow(self) -> None:
        """Keeps the tasks in step with what is loaded. A model that comes back has its slots under the same numbers."""
        loaded = [model.name for model in self.models if model.status == "loaded"][:MOST_WATCHED]
        await self._end([name for name in self.tasks if name not in loaded])
        for name in loaded:
            if name not in self.tasks:
                self.watched[name] = Watched(name)
                self.tasks[name] = asyncio.create_task(self._watch(self.watched[name]), name=f"watch model {name}")

    async def _watch(self, model: Watched) -> None:
        query = f"?model={quote(model.name, safe='')}&autoload=false"
        async with aclosing(self.watch_model(query, self.quiet)) as reports:
            async for report in reports:
                model.take(report, self.clock())
                self.news.set()

    async def _end(self, names: list[str]) -> None:
        tasks = [self.tasks.pop(name) for name in names]
        for name, task in zip(names, tasks, strict=True):
            self.watched.pop(name, None)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What it comes to

    def reading(self, info: Json, now: float) -> Reading:
        """The whole of it, with the services since the last reading."""
        watched = list(self.watched.values())
        restarted = next((model.name for model in watched if model.restarted), "")
        services = [self._renumbered(model, service) for model in watched for service in model.services]
        progressed = any(model.progressed for model in watched)
        for model in watched:
            model.services, model.progressed, model.restarted = [], False, False
        slots = [self._slot(model, slot) for model in watched for slot in model.slots]
        asleep = [model for model in self.models if model.status == "sleeping"]
        queue, missing = self._queue(watched)
        missing |= self._why_no_slots(watched, slots)
        return Reading(
            t=now,
            parts={
                "info": info | {"model": self._models_in_words(), "n_slots": len(slots) or None, "n_ctx_slot": None},
                **NOT_TOLD,
                "switching": {"can": False, "why_not": WHY_NOT, "fields": {}},
                "queue": queue,
                "slots": slots,
                "units": [self._unit(model, now) for model in self.models],
                "missing": NEVER_TOLD | missing,
            },
            services=sorted(services, key=lambda service: service.end),
            restarted=bool(restarted),
            who=restarted,
            working=any(model.busy for model in watched),
            progressed=progressed,
            asleep=bool(asleep) and not any(model.status in ("loaded", "loading") for model in self.models),
        )

    def _models_in_words(self) -> str:
        loaded = sum(model.status == "loaded" for model in self.models)
        return f"{len(self.models)} models, {loaded} loaded"

    def _number(self, model: Watched, slot: int) -> int:
        return self.slot_ids.setdefault((model.name, slot), len(self.slot_ids))

    def _slot(self, model: Watched, slot: Json) -> Json:
        return slot | {"id": self._number(model, slot["id"]), "model": model.name, "model_slot": slot["id"]}

    def _renumbered(self, model: Watched, service: Service) -> Service:
        return service if service.slot == NO_SLOT else replace(service, slot=self._number(model, service.slot))

    def _queue(self, watched: list[Watched]) -> tuple[Json | None, Json]:
        """The sum over all loaded models, when each tells its part."""
        if not watched:
            return None, {"queue": NONE_LOADED}
        silent = next((model for model in watched if model.waiting is None), None)
        if silent is not None:
            return None, {"queue": f"{silent.name}: {silent.missing.get('queue', 'not told yet.')}"}
        return {"depth": sum(model.waiting or 0 for model in watched), "oldest_s": None}, {}

    def _why_no_slots(self, watched: list[Watched], slots: list[Json]) -> Json:
        if slots:
            return {}
        if not watched:
            return {"slots": NONE_LOADED}
        reasons = [f"{model.name}: {why}" for model in watched if (why := model.missing.get("slots"))]
        return {"slots": " ".join(reasons)} if reasons else {}

    def _unit(self, model: Listed, now: float) -> Json:
        if (watched := self.watched.get(model.name)) is not None:
            return watched.as_unit(now)
        if model.status == "loaded":
            return unit(model.name, "model", Health.UNKNOWN.value, "Loaded, not watched", detail=NOT_WATCHED, model=model.name)
        state, words = _WORDS.get(model.status, (Health.UNKNOWN.value, model.status.capitalize()))
        return unit(model.name, "model", state, words, detail=model.ended, model=model.name)
