"""One streamed completion, timed on the client's clock."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2
import orjson

from scheduler_api.kinds.sse import Event, EventParser, EventTooLarge
from workers.load.clock import ClientClock

ERROR_BODY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Ask:
    """A completion to send; `body` is encoded beforehand so that sending costs no time of its own."""

    role: str
    slot: int
    n_prompt: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Unix seconds on the client's clock, None where the stage was not reached.

    `error` is one sentence, empty when all went well. `timings` are the server's own, in milliseconds, named as llama-server's.
    """

    sent_at: float
    first_byte_at: float | None = None
    first_token_at: float | None = None
    done_at: float | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def make_ask(role: str, slot: int, prompt: Sequence[int], n_predict: int, *, progress: bool = False) -> Ask:
    """`progress` asks for an event after each batch, which keeps a very long prompt from looking like silence."""
    body = {
        "prompt": list(prompt),
        "id_slot": slot,
        "n_predict": n_predict,
        "stream": True,
        "cache_prompt": True,
        "temperature": 0.0,
        "ignore_eos": True,
        "return_progress": progress,
    }
    return Ask(role, slot, len(prompt), orjson.dumps(body))


def make_client(
    base_url: str, api_key: str = "", *, limit_s: float = 600.0, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """`limit_s`: the longest silence of a stream that is not yet an error. Proxies of the environment are never used."""
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        timeout=httpx2.Timeout(limit_s, connect=5.0),
        transport=transport,
        trust_env=False,
        verify=_tls(),
    )


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a short request."""
    return httpx2.create_ssl_context(trust_env=False)


async def complete(client: httpx2.AsyncClient, ask: Ask, clock: ClientClock) -> Answer:
    """Sends it and reads the stream to its end. Failures come back in `error`; cancelling closes the connection at once."""
    reading = _Reading(clock)
    try:
        async with client.stream(
            "POST", "/completion", content=ask.body, headers={"Content-Type": "application/json", "Accept": "text/event-stream"}
        ) as response:
            reading.first_byte_at = clock.now()
            if response.status_code != 200:
                return reading.answer(await _refusal(response))
            async for chunk in response.aiter_raw():
                reading.take(chunk)
                if reading.done_at is not None:
                    break
    except httpx2.TimeoutException:
        return reading.answer(f"The server sent nothing for {client.timeout.read:g} s.")
    except httpx2.HTTPError as error:
        return reading.answer(f"The connection failed: {error or type(error).__name__}.")
    except (EventTooLarge, StreamRefused) as error:
        return reading.answer(str(error))
    if reading.done_at is None:
        return reading.answer("The stream ended before its last event.")
    return reading.answer()


class StreamRefused(Exception):
    """The stream carried an error or something that is not a completion; the message is one sentence."""


class _Reading:
    def __init__(self, clock: ClientClock) -> None:
        self._clock = clock
        self._parser = EventParser()
        self.sent_at = clock.now()
        self.first_byte_at: float | None = None
        self.first_token_at: float | None = None
        self.done_at: float | None = None
        self.timings: dict[str, Any] = {}

    def take(self, chunk: bytes) -> None:
        now = self._clock.now()
        for event in self._parser.feed(chunk):
            self._event(event, now)

    def _event(self, event: Event, now: float) -> None:
        try:
            message = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            raise StreamRefused("The stream holds an event that is not JSON.") from None
        if not isinstance(message, dict):
            raise StreamRefused("The stream holds an event that is not a JSON object.")
        if "error" in message:
            raise StreamRefused(f"The server reported: {_message(message)}")
        if self.first_token_at is None and (message.get("content") or message.get("tokens") or message.get("stop")):
            self.first_token_at = now
        if message.get("stop"):
            self.done_at = now
            self.timings = message.get("timings") or {}

    def answer(self, error: str = "") -> Answer:
        return Answer(self.sent_at, self.first_byte_at, self.first_token_at, self.done_at, self.timings, error)


async def _refusal(response: httpx2.Response) -> str:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > ERROR_BODY_BYTES:
            break
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return f"The server answered {response.status_code}."
    return f"The server answered {response.status_code}: {_message(message)}"


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or "no reason given")[:300]
