"""What every stub server has in common, and one that only redirects."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

type Json = dict[str, Any]

LOADING: Json = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
BAD_KEY: Json = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}


@dataclass
class FakeServer(ABC):
    """Counts requests and how many are pending at once. `hold` keeps answers of a path back until it is cleared."""

    api_key: str = ""
    loading: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    keys: list[str | None] = field(default_factory=list)
    pending: int = 0
    most_pending: int = 0
    times: list[float] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    url: str = ""

    @abstractmethod
    def routes(self) -> list[Route]: ...

    def app(self) -> Starlette:
        return Starlette(routes=[*self.routes(), Route("/{rest:path}", self._unknown)])

    async def _unknown(self, request: Request) -> Response:
        error = {"code": 404, "message": "File Not Found", "type": "not_found_error"}
        return await self.enter(request) or JSONResponse({"error": error}, 404)

    async def enter(self, request: Request, *, public: bool = False) -> Response | None:
        """Notes the request; an answer when it gets no further."""
        self.seen[request.url.path] += 1
        self.times.append(time.monotonic())
        self.keys.append(request.headers.get("authorization"))
        self.pending += 1
        self.most_pending = max(self.most_pending, self.pending)
        try:
            while request.url.path in self.held:
                await asyncio.sleep(0.01)
        finally:
            self.pending -= 1
        if self.loading:
            return JSONResponse(LOADING, 503)
        if self.api_key and not public and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse(BAD_KEY, 401)
        return None


@dataclass
class FakeRedirect(FakeServer):
    """Sends whoever asks for anything to the same path elsewhere."""

    elsewhere: str = ""

    def routes(self) -> list[Route]:
        return [Route("/{rest:path}", self._redirect)]

    async def _redirect(self, request: Request) -> Response:
        await self.enter(request)
        return RedirectResponse(self.elsewhere + request.url.path)
