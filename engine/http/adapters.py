"""LoRA adapters: which ones a request wants, and the scales of requests that do not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from engine.http.body import read_body
from engine.http.errors import ApiError, field_error, json_response
from engine.http.fields import Fields
from engine.http.state import ServerState
from engine.scheduler.task import Lora

_SHAPE = 'an array of {"id": ..., "scale": ...}'


class AdapterRoutes:
    """GET and POST /lora-adapters. New scales hold for requests that come in from then on."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def show(self, request: Request) -> Response:
        scales, adapters = self._state.lora, self._state.live.backend.info.lora
        return json_response(
            [
                {
                    "id": place,
                    "path": adapter.path,
                    "scale": scales[place],
                    "task_name": adapter.task_name,
                    "prompt_prefix": adapter.prompt_prefix,
                }
                for place, adapter in enumerate(adapters)
            ]
        )

    async def set(self, request: Request) -> Response:
        self._state.live  # noqa: B018  # raises while the model loads
        try:
            given = orjson.loads(await read_body(request.scope, request.receive))
        except orjson.JSONDecodeError as exc:
            raise ApiError(400, f"The body is not valid JSON: {exc}.") from None
        if type(given) is not list:
            raise ApiError(400, "Request body must be an array")
        asked = dict(_pairs(given, len(self._state.lora)))
        self._state.lora = [asked.get(place, 0.0) for place in range(len(self._state.lora))]
        return json_response({"success": True})


def read_lora(fields: Fields, scales: Sequence[float]) -> Lora:
    """The request's own list, in which an adapter that is not named has a scale of 0; without one the server's scales.

    With no adapters loaded a list has no effect, but its shape is checked all the same.
    """
    given = fields.array("lora")
    asked = dict(_pairs(given, len(scales)))
    return effective([asked.get(place, 0.0) for place in range(len(scales))] if given else scales)


def effective(scales: Sequence[float]) -> Lora:
    return tuple((place, scale) for place, scale in enumerate(scales) if scale)


def lora_json(lora: Lora) -> list[dict[str, Any]]:
    return [{"id": adapter, "scale": scale} for adapter, scale in lora]


def _pairs(given: list[Any], n_adapters: int) -> list[tuple[int, float]]:
    pairs = []
    for place, item in enumerate(given):
        if type(item) is not dict:
            raise field_error("lora", _SHAPE)
        entry = Fields(item, f"lora[{place}]")
        adapter = entry.integer("id", default=-1, low=-1)
        pairs.append((adapter, entry.number("scale", default=0.0)))
        if n_adapters and not 0 <= adapter < n_adapters:
            raise field_error("lora", f"{_SHAPE} with ids from 0 to {n_adapters - 1}")
    return pairs
