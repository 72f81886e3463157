"""From what an OpenAI-compatible server answers to readings: no I/O.

That interface has one question that is free of work, the list of models. Everything else that pages show of a server is unknown
here, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_api.health import Health
from scheduler_api.kinds.base import NOT_TOLD, Condition, Reading
from scheduler_api.kinds.fields import Json, count, items, mapping, text
from scheduler_api.kinds.polling import NotServing, check_welcome
from scheduler_api.wire import Answer

WHY_NOT = "This server cannot switch policies: the OpenAI-compatible interface has none."
NO_SLOTS = "The OpenAI-compatible interface does not tell of slots."
NO_COUNTS = "The OpenAI-compatible interface has no counters, so nothing is known of other clients' work."
NO_LIST = "/v1/models does not answer with a list of models (status {status}); one can be named with the registration."
NO_NAME = "/v1/models lists no model."
NOT_LISTED = "/v1/models does not list {model}, which requests of experiments name."
LIMITED = "It limits how often it may be asked (429), so it is asked more seldom."
_NEVER_TOLD = {
    "slots": NO_SLOTS,
    "slot_rates": NO_SLOTS,
    "worst_stall_s": "Stalls are those of slots, which this interface does not tell of.",
    "iterations": "This server does not report its batches.",
    "policy": "The OpenAI-compatible interface has no policies.",
    "phase": "The OpenAI-compatible interface does not tell of phases.",
    "oldest": "The OpenAI-compatible interface does not tell how long requests have waited.",
    **dict.fromkeys(("queue", "units", "prompt_tps", "gen_tps", "metrics"), NO_COUNTS),
}
_INFO = ("n_slots", "n_ctx", "n_batch", "n_ubatch", "n_threads", "kv_mode", "kv_from", "kv_used", "kv_size", "started_at")
_NO_SUCH_PATH = (404, 405, 501)
TOO_OFTEN = 429


def check(answer: Answer, *, key_given: bool) -> None:
    """Raises NotServing for an answer that tells of the server as a whole."""
    check_welcome(answer, key_given=key_given)
    if answer.status == 503:
        raise NotServing(Condition(Health.LOADING, "Not ready yet", answer.error_message()))
    if answer.status >= 500 and answer.status not in _NO_SUCH_PATH:
        raise NotServing(Condition(Health.DOWN, f"answers {answer.status}", answer.error_message()))


def listed(answer: Answer) -> list[Json] | None:
    """What an answer to /v1/models lists; None when it is no such list."""
    try:
        value = answer.json() if answer.status == 200 else None
    except ValueError:
        return None
    data = mapping(value).get("data")
    return [mapping(each) for each in items(data)] if isinstance(data, list) else None


def longest(model: Json) -> int | None:
    """Tokens of a request, where the server says so of a model as vLLM and SGLang do."""
    return count(model.get("max_model_len"))


@dataclass(slots=True)
class OpenAiReader:
    """Remembers what one server answered last. `wanted`: the model that was named with the registration; "" takes the first."""

    key_given: bool
    wanted: str = ""
    model: str = ""
    n_ctx: int | None = None
    why: str = ""
    lists: bool = True
    limited: bool = False

    @property
    def question(self) -> str:
        """What shows that it is alive: the models, or its health where it lists none."""
        return "/v1/models" if self.lists else "/health"

    def read(self, answer: Answer, now: float) -> None:
        """Raises NotServing."""
        check(answer, key_given=self.key_given)
        self.limited = answer.status == TOO_OFTEN
        if not self.lists or self.limited:
            return  # whatever it says of its health: it answers
        models = listed(answer)
        if models is None:
            self.lists = answer.status not in _NO_SUCH_PATH
            self.why = NO_LIST.format(status=answer.status)
            return
        names = [text(each.get("id")) for each in models]
        chosen = self.wanted or next(iter(names), "")
        self.model = chosen
        self.why = "" if chosen in names else NOT_LISTED.format(model=chosen) if chosen else NO_NAME
        self.n_ctx = longest(models[names.index(chosen)]) if chosen in names else None

    def reading(self, now: float) -> Reading:
        info = {"build": "", "model": self.model or self.wanted, "backend": "openai", **dict.fromkeys(_INFO)}
        why = {"model": LIMITED if self.limited else self.why} if self.limited or self.why else {}
        return Reading(
            t=now,
            parts={
                "info": {**info, "n_ctx_slot": self.n_ctx},
                **NOT_TOLD,
                "switching": {"can": False, "why_not": WHY_NOT, "fields": {}},
                "missing": _NEVER_TOLD | why,
            },
        )
