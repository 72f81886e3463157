"""Cross-origin answers, the prefix of routes, and requests that do not arrive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.http.app import create_app
from engine.http.cors import allowed_origin
from engine.options_server import Cors
from tests.unit.engine.harness import served

PAGE = {"Origin": "https://page.example"}


@pytest.mark.parametrize(
    ("origins", "credentials", "origin", "allowed"),
    [
        ("*", True, "https://page.example", "https://page.example"),
        ("*", False, "https://page.example", "*"),
        ("https://page.example", True, "https://page.example", "https://page.example"),
        ("https://page.example", True, "https://other.example", ""),
        ("localhost", True, "http://localhost:5173", "http://localhost:5173"),
        ("localhost", True, "http://localhost.example", ""),
        ("localhost", True, "http://[broken", ""),
    ],
)
def test_who_may_read(origins: str, credentials: bool, origin: str, allowed: str) -> None:
    assert allowed_origin(Cors((origins,), credentials=credentials), origin) == allowed


async def test_a_preflight_needs_no_key_and_the_answer_says_who_may_read_it() -> None:
    async with served("--api-key", "k") as engine:
        asked = await engine.client.options("/v1/chat/completions", headers=PAGE)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == PAGE["Origin"]
        assert asked.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
        assert asked.headers["access-control-allow-headers"] == "*"
        refused = await engine.client.get("/slots", headers=PAGE)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == PAGE["Origin"]
        assert "access-control-allow-origin" not in (await engine.client.get("/health")).headers


async def test_other_origins_than_the_named_ones_get_no_headers() -> None:
    async with served("--cors-origins", "https://mine.example") as engine:
        answer = await engine.client.get("/health", headers=PAGE)
        assert "access-control-allow-origin" not in answer.headers
        streamed = await engine.client.post(
            "/completion", json={"prompt": "a", "n_predict": 1, "stream": True}, headers={"Origin": "https://mine.example"}
        )
        assert streamed.headers["access-control-allow-origin"] == "https://mine.example"


async def test_routes_lie_under_the_prefix() -> None:
    async with served("--api-prefix", "/llm", "--api-key", "k") as engine:
        key = {"Authorization": "Bearer k"}
        assert (await engine.client.get("/llm/v1/models", headers=key)).status_code == 200
        assert (await engine.client.get("/v1/models", headers=key)).status_code == 404
        assert (await engine.client.get("/llmx/v1/models", headers=key)).status_code == 404
        assert (await engine.client.get("/llm/health")).status_code == 401  # only the plain path is public, as in llama-server


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with served("--timeout", "1") as engine:
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/completion", "headers": [], "query_string": b"", "scheme": "http"}
        await create_app(engine.state)(scope, receive, send)
        assert sent[0]["status"] == 408


async def test_a_chat_template_of_the_operator() -> None:
    async with served("--chat-template", "[{{ messages[0].content }}]") as engine:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        assert (await engine.post("/apply-template", body)).json()["prompt"] == "[hello]"


async def test_defaults_of_sampling_hold_for_what_a_request_leaves_out() -> None:
    async with served("--temp", "0.3", "--top-k", "7") as engine:
        settings = (await engine.post("/completion", {"prompt": "a", "n_predict": 1, "top_k": 9})).json()["generation_settings"]
        assert (settings["temperature"], settings["top_k"]) == (0.3, 9)
