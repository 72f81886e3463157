"""While one client's long text is read, the others are served."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from engine.http.body import LONG_BODY
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served

LONG = "a" * LONG_BODY
CHAT = {"messages": [{"role": "user", "content": LONG}]}


class FakeSlowTokenizer(FakeBackend):
    """Long texts wait for `go`; `began` says that one does."""

    def __init__(self) -> None:
        super().__init__(parse_options(FLAGS, {}).backend_options)
        self.began, self.go = threading.Event(), threading.Event()

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
        if LONG in text:
            self.began.set()
            assert self.go.wait(20), "nobody let it go"
            return [300]
        return super().tokenize(text, add_special=add_special, parse_special=parse_special)


async def serves_others(engine: Served) -> None:
    assert (await engine.client.get("/health")).status_code == 200
    answer = await engine.post("/completion", {"prompt": "b", "n_predict": 3, "ignore_eos": True, "stream": True})
    assert answer.text.count("data: ") == 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": LONG, "n_predict": 1}),
        ("/completion", {"prompt": [LONG, "b"], "n_predict": 1, "stream": True}),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 1}),
        ("/tokenize", {"content": LONG}),
    ],
)
async def test_others_are_served_meanwhile(path: str, body: Any) -> None:
    backend = FakeSlowTokenizer()
    async with served(backend=backend) as engine:
        request = asyncio.create_task(engine.post(path, body))
        assert await asyncio.to_thread(backend.began.wait, 5)
        await serves_others(engine)
        assert not request.done()
        backend.go.set()
        assert (await request).status_code == 200


async def test_a_fault_found_aside_is_answered_as_any(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as engine:
        answer = await engine.post("/completion", {"prompt": LONG, "temperature": "hot"})
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "temperature")
        answer = await engine.post("/completion", {"prompt": LONG})
        assert answer.json()["error"]["type"] == "exceed_context_size_error"
    assert not caplog.records
