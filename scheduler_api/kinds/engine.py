"""The engine of this project, followed through its event stream (docs/protocol.md section 1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import httpx2

from scheduler_api import strict_json, wire
from scheduler_api.health import Health
from scheduler_api.kinds.base import Condition, Reading, Report
from scheduler_api.kinds.engine_state import EngineReader
from scheduler_api.kinds.fields import Json, mapping
from scheduler_api.kinds.polling import condition_of_failure
from scheduler_api.kinds.sse import EventParser, EventTooLarge
from scheduler_api.targets import Target

UPDATE_INTERVAL_MS = 250  # as often as frames may go out: each update becomes one
#: The engine sends a comment when it has nothing to tell, well within this time.
QUIET_STREAM_S = 25.0
LONGEST_PAUSE_S = 5.0
#: Iterations asked for at the first connection, so that the batch strip begins with history.
BACKFILL = 1000


def offers_scheduler(answer: wire.Answer) -> bool:
    """Whether GET /scheduler was answered as an engine answers it."""
    try:
        value = mapping(answer.json()) if answer.status == 200 else {}
    except ValueError:
        return False
    return isinstance(value.get("policy"), dict) and isinstance(value.get("slots"), list)


def condition_of(answer: wire.Answer) -> Condition | None:
    """What an answer other than 200 says of the server; None for a 200."""
    if answer.status == 200:
        return None
    if answer.status in (401, 403):
        return Condition(Health.UNAUTHORISED, "Key not accepted", answer.error_message())
    if answer.status == 503:
        return Condition(Health.LOADING, "", answer.error_message())
    return Condition(Health.DOWN, f"answers {answer.status}", answer.error_message())


@dataclass(slots=True)
class EngineKind:
    """Follows one engine. Between two connections it resumes after the last iteration it saw."""

    first_pause_s: float = 0.5

    async def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        reader = EngineReader()
        pause = self.first_pause_s
        async with wire.async_client(target, QUIET_STREAM_S) as client:
            while True:
                try:
                    async for report in self._connection(client, target, reader):
                        if isinstance(report, Reading):
                            pause = self.first_pause_s
                        yield report
                except wire.NoAnswer as failure:
                    yield condition_of_failure(failure)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _connection(self, client: httpx2.AsyncClient, target: Target, reader: EngineReader) -> AsyncGenerator[Report, None]:
        answer = await wire.fetch(client, target.base_url + "/scheduler")
        if (problem := condition_of(answer)) is not None:
            yield problem
            return
        if not offers_scheduler(answer):
            yield Condition(Health.DOWN, "answers, but not as an engine does")
            return
        yield reader.snapshot(mapping(answer.json()))
        async for update in self._updates(client, target, reader.resume_after(BACKFILL)):
            yield reader.update(update)

    async def _updates(self, client: httpx2.AsyncClient, target: Target, after: int) -> AsyncGenerator[Json, None]:
        """The data of each update event until the stream ends. Raises NoAnswer when it breaks or falls quiet."""
        headers = {"accept": "text/event-stream", "last-event-id": str(after)}
        url = f"{target.base_url}/scheduler/events?interval_ms={UPDATE_INTERVAL_MS}"
        parser = EventParser()
        try:
            async with client.stream("GET", url, headers=headers) as response:
                if response.status_code != 200:
                    raise wire.NoAnswer("broken", f"the event stream answers {response.status_code}")
                async for piece in response.aiter_bytes():
                    for event in parser.feed(piece):
                        if event.name == "update":
                            yield mapping(strict_json.loads(event.data))
        except (httpx2.HTTPError, OSError) as error:
            raise wire.explain(error) from error
        except EventTooLarge as error:
            raise wire.NoAnswer("too_large", "an event of the stream is too large") from error
        except ValueError as error:
            raise wire.NoAnswer("broken", "the event stream carries no JSON") from error
