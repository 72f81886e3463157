"""From the bytes of an answer to its times and counts. One reader for llama-server's own events, OpenAI's, and whole bodies. No
network.

Token counts come from the server where it says them, in this order: `usage`, `timings`, llama-server's own totals; else the
events with text are counted, and `tokens_from` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeGuard

import orjson

from scheduler_api.kinds.sse import EventParser, EventTooLarge

ERROR_BODY_BYTES = 4096
TRUNCATED = "The stream ended before its last event."


class Outcome(StrEnum):
    OK = "ok"
    CANCELLED = "cancelled"  # by the client, as planned
    REFUSED = "refused"  # another status than 200
    FAILED = "failed"  # an error inside the answer, or something that is no answer
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    STOPPED = "stopped"  # the run ended first
    SKIPPED = "skipped"  # never sent: what it follows did not go well, or its time was over


@dataclass(frozen=True, slots=True)
class Answer:
    """Unix seconds on the client's clock, None where the stage was not reached.

    `error` is one sentence, empty when all went well. `timings` are the server's own, in milliseconds, named as llama-server's.
    `chunks`: when each event with a token was read. `first_token_at` counts any kind of token, `first_content_at` content alone.
    """

    sent_at: float
    first_byte_at: float | None = None
    first_token_at: float | None = None
    done_at: float | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    outcome: Outcome = Outcome.OK
    headers_at: float | None = None
    first_content_at: float | None = None
    last_token_at: float | None = None
    chunks: tuple[float, ...] = ()
    n_prompt: int | None = None
    n_cached: int | None = None
    n_generated: int | None = None
    tokens_from: str = ""  # usage | timings | server | counted
    text: str = ""
    tokens: tuple[int, ...] = ()


class StreamRefused(Exception):
    """The stream carried an error or something that is not a completion; the message is one sentence."""


class Reading:
    """Give it headers and bytes as they come. `over` once the last event was read: what follows is of no interest."""

    def __init__(self, now: Callable[[], float], *, keep: bool = False, on_first: Callable[[float], None] | None = None) -> None:
        """`keep` holds on to the text; `on_first` is given the TTFT, in seconds, when it is known."""
        self._now = now
        self._keep = keep
        self._on_first = on_first
        self._parser = EventParser()
        self._body: bytearray | None = None
        self.status = 0
        self.sent_at = now()
        self.headers_at: float | None = None
        self.first_byte_at: float | None = None
        self.first_token_at: float | None = None
        self.first_content_at: float | None = None
        self.done_at: float | None = None
        self.chunks: list[float] = []
        self.timings: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self._totals: dict[str, Any] = {}
        self._counted = 0
        self._finished = False
        self._text: list[str] = []
        self._tokens: list[int] = []
        self.over = False

    @property
    def seen(self) -> int:
        """Tokens read so far, as far as events tell."""
        return self._counted

    def headers(self, status: int, content_type: str) -> None:
        self.headers_at = self._now()
        self.status = status
        if status != 200 or "event-stream" not in content_type.lower():
            self._body = bytearray()

    def take(self, piece: bytes) -> bool:
        """Whether the last event has been read. Raises StreamRefused, EventTooLarge."""
        now = self._now()
        if self.first_byte_at is None:
            self.first_byte_at = now
        if self._body is not None:
            if self.status == 200 or len(self._body) < ERROR_BODY_BYTES:
                self._body += piece
            return False
        for data in self._parser.feed_data(piece):
            self._event(data, now)
        return self.over

    def end(self) -> None:
        """The body ended as its framing said. Raises StreamRefused when the answer had not."""
        if self._body is not None:
            self._whole(self._body, self._now())
        elif self._finished and self.done_at is None:
            self.done_at = self._now()  # a server that never sends OpenAI's end mark
            self.over = True

    # -- events -------------------------------------------------------------------------------------------------------

    def _event(self, data: str | bytes, now: float) -> None:
        if self.over:
            return
        try:
            message = orjson.loads(data)
        except orjson.JSONDecodeError:
            if data in ("[DONE]", b"[DONE]"):
                self.done_at, self.over = now, True
                return
            raise StreamRefused("The stream holds an event that is not JSON.") from None
        if not isinstance(message, dict):
            raise StreamRefused("The stream holds an event that is not a JSON object.")
        if "error" in message:
            raise StreamRefused(f"The server reported: {message_of(message)}")
        if "choices" in message:
            self._openai(message, now)
        else:
            self._native(message, now)

    def _native(self, message: dict[str, Any], now: float) -> None:
        content, tokens, stop = message.get("content"), message.get("tokens"), message.get("stop")
        # The last event repeats no token: it is one only where none came before it.
        if content or tokens or (stop and self.first_token_at is None):
            self._token(len(tokens) if isinstance(tokens, list) and tokens else 1, now, content=bool(content))
            if self._keep:
                self._text.append(content or "")
                self._tokens += tokens or ()
        if stop:
            self.timings = message.get("timings") or {}
            self._totals = message
            self.done_at, self.over = now, True

    def _openai(self, message: dict[str, Any], now: float) -> None:
        if usage := message.get("usage"):
            self.usage = usage
        if timings := message.get("timings"):
            self.timings = timings
        for choice in message["choices"] or ():
            delta = choice.get("delta")
            content = choice.get("text") if delta is None else delta.get("content")
            other = delta and (delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"))
            if content or other:
                self._token(1, now, content=bool(content))
                if self._keep and content:
                    self._text.append(content)
            if choice.get("finish_reason"):
                self._finished = True

    def _token(self, count: int, now: float, *, content: bool) -> None:
        if self.first_token_at is None:
            self.first_token_at = now
            if self._on_first is not None:
                self._on_first(now - self.sent_at)
        if content and self.first_content_at is None:
            self.first_content_at = now
        self._counted += count
        self.chunks.append(now)

    def _whole(self, body: bytearray, now: float) -> None:
        """A body without events. It has no moment of a first token: only that everything was there at its end."""
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError:
            if self.status != 200:
                raise StreamRefused(f"The server answered {self.status}.") from None
            raise StreamRefused("The answer is not JSON.") from None
        if self.status != 200:
            raise StreamRefused(f"The server answered {self.status}: {message_of(message)}")
        if not isinstance(message, dict) or "error" in message:
            raise StreamRefused(f"The server reported: {message_of(message)}")
        self.usage, self.timings, self._totals = message.get("usage") or {}, message.get("timings") or {}, message
        choice = (message.get("choices") or [{}])[0]
        text = message.get("content") or choice.get("text") or (choice.get("message") or {}).get("content") or ""
        if self._keep:
            self._text, self._tokens = [text], list(message.get("tokens") or ())
        self.done_at, self.over = now, True

    # -- the answer ---------------------------------------------------------------------------------------------------

    def answer(self, outcome: Outcome = Outcome.OK, error: str = "") -> Answer:
        if outcome is Outcome.OK and self.done_at is None:
            outcome, error = Outcome.TRUNCATED, error or TRUNCATED
        generated, tokens_from = self._generated()
        return Answer(
            sent_at=self.sent_at,
            first_byte_at=self.first_byte_at,
            first_token_at=self.first_token_at,
            done_at=self.done_at,
            timings=self.timings,
            error=error,
            outcome=outcome,
            headers_at=self.headers_at,
            first_content_at=self.first_content_at,
            last_token_at=self.chunks[-1] if self.chunks else None,
            chunks=tuple(self.chunks),
            n_prompt=self._prompt(),
            n_cached=self._cached(),
            n_generated=generated,
            tokens_from=tokens_from,
            text="".join(self._text),
            tokens=tuple(self._tokens),
        )

    def _generated(self) -> tuple[int | None, str]:
        for count, whose in (
            (self.usage.get("completion_tokens"), "usage"),
            (self.timings.get("predicted_n"), "timings"),
            (self._totals.get("tokens_predicted"), "server"),
        ):
            if _whole(count):
                return count, whose
        return (self._counted, "counted") if self._counted else (None, "")

    def _prompt(self) -> int | None:
        cached, computed = self.timings.get("cache_n"), self.timings.get("prompt_n")
        both = cached + computed if _whole(cached) and _whole(computed) else None
        found = (self.usage.get("prompt_tokens"), both, self._totals.get("tokens_evaluated"))
        return next((count for count in found if _whole(count)), None)

    def _cached(self) -> int | None:
        details = self.usage.get("prompt_tokens_details") or {}
        found = (details.get("cached_tokens"), self.timings.get("cache_n"))
        return next((count for count in found if _whole(count)), None)


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def message_of(body: Any) -> str:
    """What an error body says, at most 300 characters of it: OpenAI's form, or that of servers that have a form of their own."""
    told = body if isinstance(body, dict) else {}
    error = told.get("error")
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or told.get("message") or told.get("detail") or "no reason given")[:300]


__all__ = ["TRUNCATED", "Answer", "EventTooLarge", "Outcome", "Reading", "StreamRefused", "message_of"]
