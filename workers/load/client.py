"""One streamed completion, timed on the client's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import httpx2
import orjson

from scheduler_api.connecting import AsyncGuardedTransport
from scheduler_api.targets import Target, allowed_targets
from scheduler_api.wire import KeyOfOrigin
from workers.load.clock import ClientClock
from workers.load.reading import Answer, EventTooLarge, Outcome, Reading, StreamRefused

__all__ = ["Answer", "Ask", "complete", "make_ask", "make_client"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A completion to send; `body` is encoded beforehand so that sending costs no time of its own."""

    role: str
    slot: int
    n_prompt: int
    body: bytes


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
        auth=KeyOfOrigin(Target(base_url, api_key)),
        timeout=httpx2.Timeout(limit_s, connect=5.0),
        transport=transport or AsyncGuardedTransport(allowed_targets()),
        follow_redirects=False,
        trust_env=False,
    )


async def complete(client: httpx2.AsyncClient, ask: Ask, clock: ClientClock) -> Answer:
    """Sends it and reads the stream to its end. Failures come back in `error`; cancelling closes the connection at once."""
    reading = Reading(clock.now)
    try:
        async with client.stream(
            "POST", "/completion", content=ask.body, headers={"Content-Type": "application/json", "Accept": "text/event-stream"}
        ) as response:
            reading.headers(response.status_code, "text/event-stream" if response.status_code == 200 else "")
            async for chunk in response.aiter_raw():
                reading.take(chunk)
                if reading.over:
                    break
            else:
                reading.end()
    except httpx2.TimeoutException:
        return reading.answer(Outcome.TIMEOUT, f"The server sent nothing for {client.timeout.read:g} s.")
    except httpx2.HTTPError as error:
        return reading.answer(Outcome.CONNECTION, f"The connection failed: {error or type(error).__name__}.")
    except (EventTooLarge, StreamRefused) as error:
        return reading.answer(Outcome.FAILED if reading.status == 200 else Outcome.REFUSED, str(error))
    return reading.answer()
