"""What a load run measures before its blocks: requests that are alone on the server, and none of the result."""

from __future__ import annotations

from workers import speaking
from workers.errors import RunFailed
from workers.load.alone import alone_plan
from workers.load.openai import Manner, says_ids
from workers.load.planned import Piece, Plan, Planned, Scaling
from workers.load.reading import Answer, Outcome
from workers.models import Block
from workers.records import add_records
from workers.sending import Sender

PROBE_TOKENS = 1024  # of the prompt that measures the server's speed


def speed(sender: Sender, block: Block, limit_s: float) -> float:
    """Prompt tokens a second of one prompt alone, at its second try: the first one may find a cold machine. Raises RunFailed."""
    n_ctx = sender.survey.can.n_ctx
    tokens = PROBE_TOKENS if n_ctx is None else max(16, min(PROBE_TOKENS, n_ctx // 2))
    load = sender.send(Plan(_one_after_the_other(tokens), ()), limit_s)
    add_records(block, load.records, frozenset())
    last = load.records[-1].answer
    if last.outcome is not Outcome.OK or last.done_at is None:
        raise RunFailed(f"The calibration failed. {last.error}")
    wall_s = last.done_at - last.sent_at
    computed = (last.n_prompt or tokens) - (last.n_cached or 0)
    prompt_ms = last.timings.get("prompt_ms")
    seconds = prompt_ms / 1000.0 if isinstance(prompt_ms, int | float) and prompt_ms > 0 else wall_s
    return max(1.0, computed / max(seconds, 1e-6))


def manner(sender: Sender, limit_s: float) -> Manner:
    """How the OpenAI-compatible server wants to be spoken to, which the sender does from now on. Raises RunFailed."""

    def ask(tried: Manner, tokens: int) -> Answer:
        sender.speak(tried)
        return sender.send(Plan(_one_after_the_other(tokens)[:1], ()), limit_s).records[0].answer

    found = speaking.find(ask, ids=says_ids(sender.scenario))
    sender.speak(found)
    return found


def alone(sender: Sender, block: Block, scaling: Scaling, limit_s: float) -> dict[str, float]:
    """E2E in seconds of a request of each stream by itself: what slowdowns are measured against.

    A stream whose request does not end well alone has none.
    """
    plan = alone_plan(sender.plan(1, "alone", scaling))
    add_records(block, sender.warm(plan, limit_s), frozenset(), role="warm")
    load = sender.send(plan, limit_s)
    add_records(block, load.records, frozenset())
    return {
        record.request.stream: record.answer.done_at - record.answer.sent_at
        for record in load.records
        if record.answer.outcome is Outcome.OK and record.answer.done_at is not None
    }


def _one_after_the_other(tokens: int) -> tuple[Planned, ...]:
    """Two requests of fresh text, alone each."""
    return tuple(
        Planned(
            number=number,
            stream="calibration",
            at_s=None if number else 0.0,
            pieces=(Piece(f"calibration:{tokens}:{number}", tokens),),
            n_predict=1,
            place=number,
            after=(number - 1,) if number else (),
        )
        for number in range(2)
    )
