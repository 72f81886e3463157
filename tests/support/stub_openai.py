"""An OpenAI-compatible server that answers what a test tells it to, and keeps what it was asked.

with running(FakeOpenAi(takes={"chat"})) as server: ...
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.stub_servers import FakeServer

type Json = dict[str, Any]

TEMPLATE_TOKENS = 9  # that a chat template puts around the words
TOKENS_A_WORD = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """One completion: when it came, on the monotonic clock, and from which connection."""

    at: float
    port: int
    path: str
    body: Json


@dataclass
class FakeOpenAi(FakeServer):
    """`takes`: of "chat", "text" (prompts of /v1/completions as text) and "ids" (as token ids). `refuses`: parameters that it
    answers with a 400 that names them, or does not where `mute`. Words are TOKENS_A_WORD tokens each.

    `models` None: no such path. `fails_after`: tokens after which the stream holds an error.
    """

    models: list[Json] | None = field(default_factory=lambda: [{"id": "small", "object": "model"}])
    models_status: int = 200
    health_status: int = 200
    takes: set[str] = field(default_factory=lambda: {"chat", "text", "ids"})
    refuses: tuple[str, ...] = ()
    mute: bool = False
    tells_usage: bool = True
    fails_after: int | None = None
    gap_s: float = 0.0
    asked: list[Asked] = field(default_factory=list)
    left: int = 0  # clients that went away before their answer's end

    def routes(self) -> list[Route]:
        asked = [Route(path, self._complete, methods=["POST"]) for path in ("/v1/chat/completions", "/v1/completions")]
        listed = [Route("/v1/models", self._models)] if self.models is not None else []
        return [*asked, *listed, Route("/health", self._health)]

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or Response(status_code=self.health_status)

    async def _models(self, request: Request) -> Response:
        if (refusal := await self.enter(request)) is not None:
            return refusal
        if self.models_status != 200:
            return JSONResponse({"error": {"message": "not now"}}, self.models_status)
        return JSONResponse({"object": "list", "data": self.models})

    async def _complete(self, request: Request) -> Response:
        at = time.monotonic()
        if (refusal := await self.enter(request)) is not None:
            return refusal
        body = await request.json()
        self.asked.append(Asked(at, request.client.port if request.client else 0, request.url.path, body))
        form = "chat" if "messages" in body else "ids" if isinstance(body["prompt"], list) else "text"
        if form not in self.takes:
            return JSONResponse({"error": {"message": "unknown route" if form == "chat" else "prompt must be a string"}}, 400)
        for name in self.refuses:
            if name in body:
                said = "one of the arguments is not known" if self.mute else f"Unrecognized request argument supplied: {name}"
                return JSONResponse({"error": {"message": said}}, 400)
        wanted = int(body.get("max_tokens") or body["max_completion_tokens"])
        usage = {"prompt_tokens": _tokens(body), "completion_tokens": wanted}
        if not body["stream"]:
            choice = {"text": "a" * wanted, "message": {"content": "a" * wanted}, "finish_reason": "length"}
            return JSONResponse({"choices": [choice], **({"usage": usage} if self.tells_usage else {})})
        return StreamingResponse(self._stream(form, wanted, usage, body), media_type="text/event-stream")

    async def _stream(self, form: str, wanted: int, usage: Json, body: Json) -> AsyncIterator[bytes]:
        """As servers in the field write it: a comment, a chunk with the role alone, thoughts, content, a reason, the usage."""
        done = False
        try:
            if form == "chat":
                yield b": keep-alive\n\n" + _event({"delta": {"role": "assistant", "content": None}, "finish_reason": None})
            for number in range(wanted):
                if self.gap_s:
                    await asyncio.sleep(self.gap_s)
                if number == self.fails_after:
                    yield b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
                    return
                thought = form == "chat" and number == 0 and wanted > 1
                delta = {"reasoning_content": "Okay"} if thought else {"content": f" w{number}"}
                yield _event({"delta": delta} if form == "chat" else {"text": f" w{number}"})
            yield _event({"delta": {}, "finish_reason": "length"} if form == "chat" else {"text": "", "finish_reason": "length"})
            if self.tells_usage and (body.get("stream_options") or {}).get("include_usage"):
                yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode()
            yield b"data: [DONE]\n\n"
            done = True
        finally:
            self.left += not done


def _event(choice: Json) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n".encode()


def _tokens(body: Json) -> int:
    if "messages" in body:
        return TEMPLATE_TOKENS + sum(TOKENS_A_WORD * len(each["content"].split()) for each in body["messages"])
    prompt = body["prompt"]
    return len(prompt) if isinstance(prompt, list) else TOKENS_A_WORD * len(prompt.split())
