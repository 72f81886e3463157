"""What a client may ask about the server, its model and its slots; and text in and out of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.delivery import Handle
from engine.http.adapters import lora_json
from engine.http.body import read_aside, read_body
from engine.http.errors import ApiError, json_response
from engine.http.fields import Fields, parse_object
from engine.http.files import draft_json
from engine.http.formats import fingerprint
from engine.http.prompts import check_tokens
from engine.http.sampling import sampling_json
from engine.http.state import ServerState, draining_error


class InfoRoutes:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def health(self, request: Request) -> Response:
        self._state.live  # noqa: B018  # raises while the model loads
        if self._state.draining.is_set():
            raise draining_error()
        return json_response({"status": "ok"})

    async def props(self, request: Request) -> Response:
        if request.method == "POST":
            if not self._state.options.props_endpoint:
                raise ApiError(501, "This server does not support changing global properties. Start it with `--props`")
            return json_response({"success": True})
        options, info, template = self._state.options, self._state.live.backend.info, self._state.template
        assert template is not None
        return json_response(
            {
                "default_generation_settings": {
                    "params": {**sampling_json(self._state.sampling), "n_predict": options.n_predict},
                    "n_ctx": info.n_ctx_slot,
                },
                "total_slots": options.n_slots,
                "model_alias": options.alias,
                "model_ftype": info.ftype,
                "model_path": info.path,
                "modalities": {"vision": False, "video": False, "audio": False},
                "endpoint_slots": options.slots_endpoint,
                "endpoint_props": options.props_endpoint,
                "endpoint_metrics": options.metrics_endpoint,
                "chat_template": template.source,
                "chat_template_caps": {},
                "bos_token": info.bos_text,
                "eos_token": info.eos_text,
                "build_info": fingerprint(info.build),
                "is_sleeping": False,
                "draft": draft_json(self._state),
            }
        )

    async def slots(self, request: Request) -> Response:
        if not self._state.options.slots_endpoint:
            raise ApiError(501, "This server does not support slots endpoint. Start it with `--slots`")
        runner = self._state.live
        view = runner.view()
        slots, speculative = view["slots"], view["policy"]["effective"]["speculative"] != "off"
        if "fail_on_no_slot" in request.query_params and all(slot["task"] is not None for slot in slots):
            raise ApiError(503, "no slot available")
        shown = [slot_json(slot, runner.task_of(slot["task"], slot["id"]), speculative=speculative) for slot in slots]
        return json_response(shown)

    async def models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [self._model_json()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["name"] not in self._state.options.aliases:
            raise ApiError(404, f"There is no such model; the one served is {self._state.options.alias}.")
        return json_response(self._model_json())

    def _model_json(self) -> dict[str, Any]:
        options, info = self._state.options, self._state.live.backend.info
        meta = {
            "n_vocab": info.n_vocab,
            "n_ctx": info.n_ctx_slot,
            "n_ctx_train": info.n_ctx_train,
            "n_params": info.n_params,
            "size": info.size_bytes,
        }
        return {
            "id": options.alias,
            "aliases": options.aliases,
            "object": "model",
            "created": int(self._state.started_at),
            "owned_by": "llamacpp",
            "meta": meta,
        }

    async def tokenize(self, request: Request) -> Response:
        return json_response(await self._answer(request, self._tokenize))

    async def detokenize(self, request: Request) -> Response:
        return json_response(await self._answer(request, self._detokenize))

    async def apply_template(self, request: Request) -> Response:
        return json_response(await self._answer(request, self._apply_template))

    async def _answer(self, request: Request, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        self._state.live  # noqa: B018  # raises while the model loads
        raw = await read_body(request.scope, request.receive)
        return await read_aside(len(raw), answer, parse_object(raw))

    def _tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        fields, backend = Fields(body), self._state.live.backend
        content = body.get("content", "")
        add_special = fields.boolean("add_special", default=False)
        parse_special = fields.boolean("parse_special", default=True)
        if type(content) is str:
            tokens = backend.tokenize(content, add_special=add_special, parse_special=parse_special)
        elif type(content) is list:
            tokens = []
            for place, item in enumerate(content):
                if type(item) is str:
                    tokens += backend.tokenize(item, add_special=add_special and place == 0, parse_special=parse_special)
                else:
                    tokens += check_tokens([item], backend, "content")
        else:
            raise ApiError(400, 'Field "content" must be a string or an array of strings and token ids.', field="content")
        if fields.boolean("with_pieces", default=False):
            return {"tokens": [{"id": token, "piece": _piece_json(backend.piece(token))} for token in tokens]}
        return {"tokens": tokens}

    def _detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens, backend = Fields(body).array("tokens"), self._state.live.backend
        return {"content": backend.detokenize(check_tokens(tokens, backend, "tokens"))}

    def _apply_template(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self._state.template is not None
        return {"prompt": self._state.template.render(body)}


def _piece_json(piece: bytes) -> str | list[int]:
    """Text where the bytes are whole characters, else the bytes themselves."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def slot_json(slot: dict[str, Any], handle: Handle | None, *, speculative: bool) -> dict[str, Any]:
    """A slot as llama-server shows it. One that never had a task shows its first four fields alone; `draft_n` and
    `draft_n_accepted` are this server's, of a task that has had drafts."""
    busy = slot["task"] is not None
    shown: dict[str, Any] = {"id": slot["id"], "n_ctx": slot["n_ctx"], "speculative": speculative, "is_processing": busy}
    if handle is None:
        return shown
    n_decoded = slot["n_generated"] if busy else handle.n_decoded
    n_predict = handle.task.n_predict
    drafts = (slot["n_drafted"], slot["n_accepted"]) if busy else (handle.n_drafted, handle.n_accepted)
    return {
        **shown,
        "id_task": handle.task_id,
        "n_prompt_tokens": slot["n_tokens"],
        "n_prompt_tokens_processed": slot["n_processed"] if busy else max(0, len(handle.task.prompt) - handle.n_cached),
        "n_prompt_tokens_cache": slot["n_cached"] if busy else handle.n_cached,
        **(dict(zip(("draft_n", "draft_n_accepted"), drafts, strict=True)) if drafts[0] else {}),
        "params": _params_json(handle),
        "next_token": [
            {
                "has_next_token": slot["state"] == "generating",
                "has_new_line": handle.text.has_new_line,
                "n_remain": -1 if n_predict < 0 else max(0, n_predict - n_decoded),
                "n_decoded": n_decoded,
            }
        ],
    }


def _params_json(handle: Handle) -> dict[str, Any]:
    task = handle.task
    return {
        **sampling_json(task.sampling),
        "n_predict": task.n_predict,
        "max_tokens": task.n_predict,
        "stream": handle.stream,
        "cache_prompt": task.cache_prompt,
        "lora": lora_json(task.group.lora),
        "speculative.n_max": task.draft_max,
        "speculative.n_min": task.draft_min,
    }
