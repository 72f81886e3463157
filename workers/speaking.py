"""Finding out how an OpenAI-compatible server wants to be spoken to: a few small requests, before a run's calibration."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from workers.errors import RunFailed
from workers.load.openai import OPTIONAL, Manner, manners
from workers.load.reading import Answer, Outcome

FEW, MANY = 32, 96  # tokens, or words, of the two prompts by which a server's counting is learnt
_UNKNOWN = re.compile(r"The server answered (400|404|405|415|422|501)\b")  # the manner is at fault, not the moment or the key
_PARAMETER = re.compile(r"The server answered (400|422)\b")

type Ask = Callable[[Manner, int], Answer]


def find(ask: Ask, *, ids: bool) -> Manner:
    """The first manner in which the server answers. `ask` sends a prompt of so many tokens in a manner.

    Raises RunFailed with what the server said to the last one when it takes none, and when it does not answer at all.
    """
    said = ""
    for manner in manners(ids=ids):
        found, answer = _settled(ask, manner)
        if answer.outcome is not Outcome.OK:
            said = answer.error
            if answer.outcome is not Outcome.FAILED and not _UNKNOWN.match(said):
                raise RunFailed(f"The server does not take requests. {said}")
            continue
        counted = _counting(answer, ask(found, MANY))
        if manner.prompt == "text":
            return replace(found, tokens_a_word=counted or 1.0, counted=counted is not None)
        if counted == 1.0:
            return found
    raise RunFailed(f"The server takes requests neither at /v1/chat/completions nor at /v1/completions. {said}")


def _settled(ask: Ask, manner: Manner) -> tuple[Manner, Answer]:
    """The manner without the parameters that the server refuses, and its last answer."""
    while True:
        answer = ask(manner, FEW)
        left = [name for name in OPTIONAL if name not in manner.refused]
        if answer.outcome is not Outcome.REFUSED or not _PARAMETER.match(answer.error) or not left:
            return manner, answer
        named = next((name for name in left if name in answer.error), None)
        if named is None and "ignore_eos" not in left:
            return manner, answer  # it refuses something else
        manner = manner.without(named or "ignore_eos")


def _counting(few: Answer, many: Answer) -> float | None:
    """Tokens that it counts of one word or id, from two lengths: what a chat template puts around does not count. None: it does
    not say."""
    if few.n_prompt is None or many.n_prompt is None or many.n_prompt <= few.n_prompt:
        return None
    return (many.n_prompt - few.n_prompt) / (MANY - FEW)


def losses(manner: Manner) -> list[str]:
    """What is lost by parameters that the server refuses, one sentence each."""
    return [f"The server does not take {name}, so {OPTIONAL[name]}." for name in manner.refused if OPTIONAL[name]]
