"""From what a llama-server answers to readings: no I/O."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from scheduler_api.figures import Service
from scheduler_api.health import Health
from scheduler_api.kinds.base import NOT_TOLD, Condition, Reading
from scheduler_api.kinds.engine_state import NO_SLOT
from scheduler_api.kinds.fields import Json, count, mapping, text
from scheduler_api.kinds.llama_ledger import Ledger
from scheduler_api.kinds.llama_metrics import Metrics, parse_metrics
from scheduler_api.kinds.llama_slots import SlotTracker, parse_slots, shape_of
from scheduler_api.kinds.polling import NotServing, check_welcome
from scheduler_api.wire import Answer

WHY_NOT = "This server cannot switch policies: it is a stock llama-server, whose order and phases are compiled in."

NEVER_TOLD = {
    "iterations": "This server does not report its batches.",
    "policy": "A stock llama-server has no policies to report.",
    "phase": "A stock llama-server does not report phases.",
    "kv_mode": "A stock llama-server does not tell how its KV cache is divided.",
    "n_prompt": "A stock llama-server does not tell how long a prompt is before it is processed.",
    "slot_times": "Times of slots are those at which a poll saw the change.",
    "oldest": "A stock llama-server does not tell how long requests have waited.",
}
_NOT_IN_PROPS = ("n_ctx", "n_batch", "n_ubatch", "n_threads", "kv_mode", "kv_from", "kv_used", "kv_size", "started_at")
SLOTS_OFF = "The slots view is disabled on this server (it was started with --no-slots)."
METRICS_OFF = "Queue depth is in /metrics, which is off on this server; it is on with --metrics."
QUEUE_NOT_EXPORTED = "This version of llama-server does not export the queue depth."
KEPT_AWAKE = (
    "Asking for slots counts as use and keeps this server from going to sleep; start it with --metrics, or register it as quiet."
)
KEPT_AWAKE_BY_METRICS = (
    "Builds of this age take /metrics as use, so watching keeps this server awake; update it, or register it as quiet."
)
ASLEEP = "The model is asleep; watching does not wake it."
LONGEST_IDLE_GAP_S = 600
#: Builds from here on (September 2026) answer /metrics without counting it as use; in earlier ones it wakes a sleeping model.
METRICS_FREE_SINCE = 10_900
MOMENT_S = 2.5
_BUILD = re.compile(r"b(\d+)")


class IsRouter(Exception):
    """The address is a router of several models."""


def _is_off(answer: Answer) -> bool:
    return answer.status in (404, 501)


def check(answer: Answer, *, key_given: bool) -> None:
    """Raises NotServing for an answer that tells of the server as a whole."""
    check_welcome(answer, key_given=key_given)
    if answer.status == 503:
        raise NotServing(Condition(Health.LOADING, "", answer.error_message()))
    if answer.status >= 500 and not _is_off(answer):
        raise NotServing(Condition(Health.DOWN, f"answers {answer.status}", answer.error_message()))


@dataclass(slots=True)
class LlamaReader:
    """Remembers what one llama-server answered last, and decides what is worth asking it."""

    key_given: bool
    quiet: bool
    info: Json = field(default_factory=dict)
    tracker: SlotTracker = field(default_factory=SlotTracker)
    frame_slots: list[Json] | None = None
    last_metrics: Metrics | None = None
    metrics_at: float = 0.0
    off: dict[str, str] = field(default_factory=dict)
    asleep: bool = False
    can_sleep: bool = False
    #: Whether /metrics can be asked without counting as use; None when neither the build nor the server has shown.
    metrics_free: bool | None = None
    woke: bool = False
    restarted: bool = False
    loading_seen: bool = False
    idle_polls: int = 0
    tokens_unseen: bool = False
    progressed: bool = False
    pending: list[Service] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    # What to ask

    @property
    def wants_slots(self) -> bool:
        return not self.asleep and "slots" not in self.off

    @property
    def wants_metrics(self) -> bool:
        return not self.asleep and "metrics" not in self.off

    @property
    def expects_work(self) -> bool:
        """Slots work, or did since they were last asked for."""
        busy = any(slot["state"] != "idle" for slot in self.frame_slots or [])
        return busy or self.tokens_unseen or self._metrics_working() is True

    @property
    def must_not_wake(self) -> bool:
        """Whether it may have gone to sleep since it was last asked, so that /props has to tell first: it wakes nobody."""
        watched_gently = self.quiet or self._metrics_working() is not None
        return self.can_sleep and watched_gently and not self.expects_work

    @property
    def idle_factor(self) -> float:
        """How much longer than usual the slots of an idle server are left alone.

        Asking for them counts as use and keeps a server from going to sleep; /metrics does not, and tells of new work too.
        """
        if self._metrics_working() is not None:
            return float(LONGEST_IDLE_GAP_S)
        return float(min(LONGEST_IDLE_GAP_S, 2**self.idle_polls)) if self.quiet else 1.0

    @property
    def metrics_factor(self) -> float:
        """How much longer than usual the metrics of an idle server are left alone, where asking for them counts as use."""
        if self.metrics_free or not self.quiet or self.expects_work:
            return 1.0
        return float(min(LONGEST_IDLE_GAP_S, 2**self.idle_polls))

    def _metrics_working(self) -> bool | None:
        return self.last_metrics.working if self.last_metrics is not None else None

    # What was answered

    def _check(self, answer: Answer) -> None:
        self.loading_seen |= answer.status == 503
        check(answer, key_given=self.key_given)

    def health(self, answer: Answer, now: float) -> None:
        self._check(answer)

    def props(self, answer: Answer, now: float) -> None:
        self._check(answer)
        raw = mapping(json_of(answer)) if answer.status == 200 else {}
        if raw.get("role") == "router":
            self.info = _info(raw)
            raise IsRouter
        self._note_sleep("is_sleeping" in raw, raw.get("is_sleeping") is True, now)
        shape = self.info.get("slots_shape", "")
        self.info = _info(raw) | {"slots_shape": shape}
        build = _BUILD.search(self.info["build"])
        if build is not None and int(build[1]) > 0:
            self.metrics_free = int(build[1]) >= METRICS_FREE_SINCE
        self._note_offers(raw)

    def begin(self) -> None:
        """It is met anew: another process may offer what the last one did not."""
        self.off = {}

    def _note_offers(self, props: Json) -> None:
        """Older builds do not tell here what is off; what they answered when asked then holds on."""
        known = {name: why for name, why in self.off.items() if why in (SLOTS_OFF, METRICS_OFF)}
        self.off = {name: why for name, why in known.items() if f"endpoint_{name}" not in props}
        if props.get("endpoint_slots") is False:
            self.off["slots"] = SLOTS_OFF
        if props.get("endpoint_metrics") is False:
            self.off["metrics"] = METRICS_OFF

    def _note_sleep(self, can_sleep: bool, asleep: bool, now: float) -> None:
        self.woke = self.asleep and not asleep
        if self.woke:
            self.idle_polls = 0
        if asleep and not self.asleep:
            self.quiet = True  # it has shown that it sleeps when left alone
            # Asked for its metrics a moment ago and asleep all the same: they do not count as use.
            self.metrics_free = self.metrics_free or (now - self.metrics_at < MOMENT_S) or None
        if asleep:
            self.frame_slots, self.last_metrics, self.ledger = None, None, Ledger()
        self.can_sleep, self.asleep = can_sleep, asleep

    def metrics(self, answer: Answer, now: float) -> None:
        if answer.status != 200:
            self._check(answer)
            self.off["metrics"] = METRICS_OFF if _is_off(answer) else _refusal(answer, "/metrics")
            return
        found = parse_metrics(answer.body.decode("utf-8", "replace"), answer.headers.get("process-start-time-unix", ""))
        before, since = self.last_metrics, self.metrics_at
        self.last_metrics, self.metrics_at = found, now
        if before is not None and found.restarted_since(before):
            self._restart()
        elif before is not None:
            grown = _between(before, found, since, now)
            self.tokens_unseen |= grown.prompt + grown.generated > 0
            self.progressed |= self.tokens_unseen or found.computed_since(before)
            if "slots" not in self.off:
                self.ledger.counted(grown.prompt, grown.generated)
            elif grown.prompt + grown.generated > 0:
                self.pending.append(grown)
        if not self.metrics_free and not self.expects_work:
            self.idle_polls += 1

    def slots(self, answer: Answer, now: float) -> None:
        if answer.status != 200:
            self._check(answer)
            self.frame_slots = None
            self.off["slots"] = SLOTS_OFF if _is_off(answer) else _refusal(answer, "/slots")
            return
        self.tokens_unseen = False
        raws = parse_slots(json_of(answer))
        if self.tracker.has_restarted(raws):
            self._restart()
        before = self.tracker.polled_at
        self.ledger.shown(*self.tracker.shown_at_first(raws))
        self.frame_slots, services = self.tracker.update(raws, now)
        self.pending += services
        self._note_missed(services, now if before is None else before, now)
        self.info["slots_shape"] = shape_of(raws)
        self.idle_polls = 0 if self.expects_work else self.idle_polls + 1

    def _note_missed(self, services: list[Service], since: float, now: float) -> None:
        """What the counters tell of beyond what the slots showed."""
        for service in services:
            self.ledger.shown(service.prompt, service.generated)
        idle = self._metrics_working() is False and all(slot["state"] == "idle" for slot in self.frame_slots or [])
        prompt, generated = self.ledger.settle(idle=idle)
        if self.last_metrics is not None and prompt + generated > 0:
            self.pending.append(Service(NO_SLOT, since, now, prompt, generated))

    def _restart(self) -> None:
        self.restarted = True
        self.begin()
        self.ledger = Ledger()
        self.tracker = SlotTracker()
        self.pending = []

    # What it comes to

    def reading(self, now: float) -> Reading:
        """All that is known, with the services since the last reading."""
        restarted = self.restarted or self.loading_seen
        self.restarted = self.loading_seen = False
        services, self.pending = self.pending, []
        progressed, self.progressed = self.progressed, False
        slots, missing = self._slots_and_missing()
        deferred = self.last_metrics.deferred if self.last_metrics is not None else None
        return Reading(
            t=now,
            parts={
                "info": dict(self.info),
                **NOT_TOLD,
                "switching": {"can": False, "why_not": WHY_NOT, "fields": {}},
                "queue": None if deferred is None else {"depth": int(deferred), "oldest_s": None},
                "slots": slots,
                "missing": missing,
            },
            services=services,
            restarted=restarted,
            working=False if self.asleep else self._metrics_working(),
            progressed=progressed,
            asleep=self.asleep,
        )

    def _slots_and_missing(self) -> tuple[list[Json], Json]:
        missing = dict(NEVER_TOLD)
        if self.asleep:
            missing |= {"slots": ASLEEP, "queue": ASLEEP}
        elif "slots" in self.off:
            missing |= {"slots": self.off["slots"], "slot_rates": self.off["slots"]}
        if "metrics" in self.off:
            missing["queue"] = self.off["metrics"]
        elif self.last_metrics is not None and self.last_metrics.deferred is None:
            missing["queue"] = QUEUE_NOT_EXPORTED
        if self.can_sleep and not self.quiet:
            if "metrics" not in self.off and self.metrics_free is False:
                missing["sleep"] = KEPT_AWAKE_BY_METRICS
            elif "metrics" in self.off and "slots" not in self.off:
                missing["sleep"] = KEPT_AWAKE
        return self.frame_slots or [], missing


def json_of(answer: Answer) -> object:
    """Raises NotServing when it is none."""
    try:
        found: object = answer.json()
    except ValueError:
        raise NotServing(Condition(Health.DOWN, "answers, but not with JSON")) from None
    return found


def _refusal(answer: Answer, path: str) -> str:
    message = answer.error_message()
    return message or f"{path} answers {answer.status}."


def _info(props: Json) -> Json:
    settings = mapping(props.get("default_generation_settings"))
    return {
        "build": text(props.get("build_info")),
        "model": text(props.get("model_alias")) or posixpath.basename(text(props.get("model_path"), 4096)),
        "backend": "llama-server",
        "n_slots": count(props.get("total_slots")),
        "n_ctx_slot": count(settings.get("n_ctx")),
        **dict.fromkeys(_NOT_IN_PROPS),
        "slots_shape": "",
    }


def _between(before: Metrics, now: Metrics, start: float, end: float) -> Service:
    """Tokens that the counters tell of, of slots unknown."""

    def grown(new: float | None, old: float | None) -> int:
        return 0 if new is None or old is None else int(new - old)

    prompt = grown(now.prompt_tokens, before.prompt_tokens)
    return Service(NO_SLOT, start, end, prompt, grown(now.generated_tokens, before.generated_tokens))
