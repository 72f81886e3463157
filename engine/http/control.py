"""The scheduler's state, the switch of its policies and the stream of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.http.body import read_body
from engine.http.errors import ApiError, json_response
from engine.http.fields import parse_object
from engine.http.files import draft_json
from engine.http.state import ServerState
from engine.ring import RING_SIZE, TASK_RING_SIZE, record_json, task_json
from engine.runner import Runner
from engine.scheduler.control import PolicyConflict
from engine.scheduler.policy import PolicyInvalid

MAX_ITERATIONS = 2_000  # in one answer or one event
KEEP_ALIVE_S = 15.0


class ControlRoutes:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def scheduler(self, request: Request) -> Response:
        return json_response(self._view(self._state.live))

    async def policy(self, request: Request) -> Response:
        runner = self._state.live
        body = parse_object(await read_body(request.scope, request.receive))
        dry_run = _query_flag(request, "dry_run")
        unknown = body.keys() - {"expected_version", "set", "ttl_s", "reason"}
        if unknown:
            raise _invalid(min(unknown), "There is no such field.", ["expected_version", "set", "ttl_s", "reason"])
        version, changes, reason = body.get("expected_version"), body.get("set"), body.get("reason")
        if type(version) is not int:
            raise _invalid("expected_version", "expected_version must be the version that the change is based on.")
        if type(changes) is not dict or not changes:
            raise _invalid("set", "set must be an object with at least one policy field.")
        if reason is not None and type(reason) is not str:
            raise _invalid("reason", "reason must be a string.")
        try:
            state = runner.set_policy(
                changes, expected_version=version, ttl_s=body.get("ttl_s"), reason=reason or "", dry_run=dry_run
            )
        except PolicyInvalid as exc:
            raise _invalid(exc.field, exc.message, list(exc.allowed)) from None
        except PolicyConflict as exc:
            current = exc.current.as_dict()
            message = f"The policy is at version {exc.current.version}, not {version}: somebody else changed it."
            raise ApiError(409, message, policy=current) from None
        return json_response(state.as_dict())

    async def iterations(self, request: Request) -> Response:
        after = _query_int(request, "after", 0, 0, 2**63)
        limit = _query_int(request, "limit", MAX_ITERATIONS, 1, RING_SIZE)
        records, gap = self._state.live.ring.after(after, limit)
        return json_response({"gap": gap, "iterations": [record_json(record) for record in records]})

    async def tasks(self, request: Request) -> Response:
        after = _query_int(request, "after", 0, 0, 2**63)
        limit = _query_int(request, "limit", MAX_ITERATIONS, 1, TASK_RING_SIZE)
        records, gap = self._state.live.books.tasks.after(after, limit)
        return json_response({"gap": gap, "tasks": [task_json(record) for record in records]})

    async def events(self, request: Request) -> Response:
        interval = _query_int(request, "interval_ms", 100, 20, 5_000) / 1e3
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        stream = self._updates(self._state.live, interval, after)
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _updates(self, runner: Runner, interval: float, after: int | None) -> AsyncIterator[bytes]:
        """An update at once, then one whenever something changed, `interval` seconds after the last at the earliest."""
        seen = runner.ring.last if after is None else after
        n_ended = runner.books.tasks.last if after is None else _before(runner, after)
        while not self._state.stopping.is_set():
            changes = runner.changes
            view = self._view(runner)
            del view["capabilities"]
            records, gap = runner.ring.after(seen, MAX_ITERATIONS, newest=True)
            gap = gap or seen > runner.ring.last
            seen = runner.ring.last if not records else records[-1].iteration
            ended, lost = runner.books.tasks.after(n_ended, MAX_ITERATIONS, newest=True)
            n_ended = ended[-1].number if ended else n_ended
            update = {"gap": gap or lost, "state": view, "iterations": [record_json(record) for record in records]}
            data = orjson.dumps({**update, "tasks": [task_json(record) for record in ended]})
            yield b"event: update\nid: %d\ndata: %b\n\n" % (seen, data)
            if await self._stops_within(interval):
                return
            while not await _changes_within(runner, changes, KEEP_ALIVE_S):
                yield b": nothing new\n\n"

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._state.stopping.wait()
        except TimeoutError:
            return False

    def _view(self, runner: Runner) -> dict[str, Any]:
        state, info = self._state, runner.backend.info
        server = {
            "name": state.options.alias,
            "backend": info.backend,
            "build": info.build,
            "started_at": state.started_at,
            "n_slots": state.options.n_slots,
            "n_ctx": info.n_ctx,
            "n_ctx_slot": info.n_ctx_slot,
            "n_batch": info.n_batch,
            "n_ubatch": info.n_ubatch,
            "n_threads": info.n_threads,
            "draft": draft_json(state),
        }
        return {"server": server, **runner.view()}


def _before(runner: Runner, iteration: int) -> int:
    """Number of the last end of a task that a reader up to this iteration knows for sure."""
    known, _ = runner.books.tasks.after(0, TASK_RING_SIZE)
    return next((record.number - 1 for record in known if record.iteration >= iteration), runner.books.tasks.last)


async def _changes_within(runner: Runner, changes: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await runner.changed(changes)
    except TimeoutError:
        return False
    return True


def _invalid(field: str, message: str, allowed: list[object] | None = None) -> ApiError:
    return ApiError(422, message, field=field, allowed=allowed or [])


def _query_int(request: Request, name: str, default: int, low: int, high: int) -> int:
    raw = request.query_params.get(name)
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 19 or not low <= int(raw) <= high:
        raise ApiError(400, f'Query parameter "{name}" must be a whole number from {low} to {high}.', field=name)
    return int(raw)


def _query_flag(request: Request, name: str) -> bool:
    raw = request.query_params.get(name)
    if raw in (None, "", "0", "false"):
        return False
    if raw in ("1", "true"):
        return True
    raise ApiError(400, f'Query parameter "{name}" must be true or false.', field=name)
