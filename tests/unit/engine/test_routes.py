"""Everything but completions: loading, keys, slots, metrics, models, and the control surface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from engine.clock import RealClock
from engine.http.app import create_app
from engine.http.requests import clean_label
from engine.http.state import ServerState
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, Served, served


@pytest.fixture
async def engine() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


async def test_while_the_model_loads_everything_says_so_before_it_asks_for_a_key() -> None:
    options = parse_options([*FLAGS, "--api-key", "k"], {})
    transport = httpx2.ASGITransport(app=create_app(ServerState(options, RealClock(), started_at=0.0)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://engine") as client:
        for path in ("/health", "/slots", "/nothing"):
            response = await client.get(path)
            assert response.status_code == 503
            assert response.json() == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


async def test_keys() -> None:
    async with served("--api-key", "right,other") as engine:
        get = engine.client.get
        assert (await get("/health")).status_code == 200
        assert (await get("/health/")).status_code == 401
        refused = await get("/slots")
        assert refused.status_code == 401
        assert refused.json()["error"] == {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}
        assert (await get("/slots", headers={"Authorization": "Bearer other"})).status_code == 200
        assert (await get("/slots", headers={"Authorization": "right"})).status_code == 200
        assert (await get("/slots", headers={"X-Api-Key": "right"})).status_code == 200
        assert (await get("/slots", headers={"Authorization": "", "X-Api-Key": "right"})).status_code == 401
        assert (await get("/nothing")).status_code == 401
        assert (await engine.client.options("/slots")).status_code != 401


async def test_unknown_paths_and_methods_are_not_found(engine: Served) -> None:
    for response in (
        await engine.client.get("/nothing"),
        await engine.client.get("/completion"),
        await engine.client.get("/health/"),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["type"] == "not_found_error"


async def test_slots_before_and_after_a_task(engine: Served) -> None:
    slots = (await engine.client.get("/slots")).json()
    assert slots[1] == {"id": 1, "n_ctx": 256, "speculative": False, "is_processing": False}
    await engine.post("/completion", {"prompt": [300, 301, 302], "n_predict": 2, "id_slot": 0})
    slot = (await engine.client.get("/slots")).json()[0]
    assert not slot["is_processing"]
    assert slot["n_prompt_tokens_processed"] == 3
    assert slot["n_prompt_tokens"] == 4
    assert slot["params"]["n_predict"] == 2
    assert slot["next_token"] == [{"has_next_token": False, "has_new_line": False, "n_remain": 0, "n_decoded": 2}]
    assert (await engine.client.get("/slots?fail_on_no_slot=1")).status_code == 200


async def test_a_model_has_each_of_its_names() -> None:
    async with served("--alias", "tiny-2,fim, code") as engine:
        listed = (await engine.client.get("/v1/models")).json()["data"]
        assert [(model["id"], model["aliases"]) for model in listed] == [("code", ["code", "fim", "tiny-2"])]
        assert (await engine.client.get("/v1/models/tiny-2")).json() == listed[0]
        assert (await engine.client.get("/v1/models/other")).status_code == 404
        assert (await engine.post("/completion", {"prompt": "a", "n_predict": 1})).json()["model"] == "code"


async def test_endpoints_that_are_off_say_which_flag_turns_them_on() -> None:
    async with served("--no-slots") as engine:
        response = await engine.client.get("/slots")
        assert response.status_code == 501
        assert "--slots" in response.json()["error"]["message"]
        assert (await engine.post("/props", {})).status_code == 501
        assert (await engine.client.get("/props")).json()["endpoint_slots"] is False


async def test_metrics_count_and_their_rates_reset(engine: Served) -> None:
    await engine.post("/completion", {"prompt": [300, 301, 302], "n_predict": 2})
    first = await engine.client.get("/metrics")
    assert first.headers["process-start-time-unix"].isdigit()
    values = dict(line.split() for line in first.text.splitlines() if not line.startswith("#"))
    assert values["llamacpp:prompt_tokens_total"] == "3"
    assert values["llamacpp:tokens_predicted_total"] == "2"
    assert values["llamacpp:requests_processing"] == "0"
    second = await engine.client.get("/metrics")
    assert "\nllamacpp:prompt_tokens_seconds 0\n" in second.text


async def test_models_and_props(engine: Served) -> None:
    models = (await engine.client.get("/v1/models")).json()
    assert models["data"][0]["id"] == "tiny"
    assert models == (await engine.client.get("/models")).json()
    props = (await engine.client.get("/props")).json()
    assert props["total_slots"] == 2
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert props["chat_template"]


async def test_tokens_with_pieces(engine: Served) -> None:
    tokens = (await engine.post("/tokenize", {"content": "é", "with_pieces": True})).json()["tokens"]
    assert [token["piece"] for token in tokens] == [[0xC3], [0xA9]]
    assert (await engine.post("/detokenize", {"tokens": [token["id"] for token in tokens]})).json() == {"content": "é"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "expected_version"),
        ({"expected_version": "1", "set": {"phase": "barrier"}}, "expected_version"),
        ({"expected_version": True, "set": {"phase": "barrier"}}, "expected_version"),
        ({"expected_version": 1}, "set"),
        ({"expected_version": 1, "set": {}}, "set"),
        ({"expected_version": 1, "set": []}, "set"),
        ({"expected_version": 1, "set": {"phase": 5}}, "phase"),
        ({"expected_version": 1, "set": {"phase": ["barrier"]}}, "phase"),
        ({"expected_version": 1, "set": {"colour": "red"}}, "colour"),
        ({"expected_version": 1, "set": {"phase": "barrier"}, "ttl_s": -1}, "ttl_s"),
        ({"expected_version": 1, "set": {"phase": "barrier"}, "ttl_s": "long"}, "ttl_s"),
        ({"expected_version": 1, "set": {"phase": "barrier"}, "reason": 5}, "reason"),
        ({"expected_version": 1, "set": {"phase": "barrier"}, "reason": "x" * 501}, "reason"),
        ({"expected_version": 1, "set": {"phase": "barrier"}, "until": 5}, "until"),
    ],
)
async def test_a_policy_change_that_is_wrong_names_its_field(engine: Served, body: dict[str, Any], field: str) -> None:
    response = await engine.client.patch("/scheduler/policy", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["field"] == field
    assert (await engine.client.get("/scheduler")).json()["policy"]["version"] == 1


@pytest.mark.parametrize("query", ["after=x", "after=-1", "limit=0", "limit=99999999999999999999", "after=٣"])
async def test_bad_query_parameters_are_refused(engine: Served, query: str) -> None:
    assert (await engine.client.get(f"/scheduler/iterations?{query}")).status_code == 400


async def read_updates(engine: Served, count: int, **headers: str) -> list[dict[str, Any]]:
    """The first updates of the event stream, read as an ASGI server would send them."""
    updates: list[dict[str, Any]] = []
    enough = asyncio.Event()

    async def send(message: Any) -> None:
        for line in message.get("body", b"").decode().splitlines():
            if line.startswith("data: "):
                updates.append(json.loads(line[6:]))
        if len(updates) >= count:
            enough.set()

    async def receive() -> Any:
        await enough.wait()
        return {"type": "http.disconnect"}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": "GET"}
    scope |= {"path": "/scheduler/events", "query_string": b"interval_ms=20", "headers": raw, "server": ("engine", 80)}
    await asyncio.wait_for(create_app(engine.state)(scope, receive, send), 10)
    return updates


async def test_events_begin_with_the_state_and_follow_changes(engine: Served) -> None:
    reading = asyncio.create_task(read_updates(engine, 2))
    await asyncio.sleep(0.1)
    await engine.post("/completion", {"prompt": "a", "n_predict": 3})
    first, second = await reading
    assert "capabilities" not in first["state"]
    assert first["iterations"] == []
    assert [iteration["i"] for iteration in second["iterations"]] == list(range(1, second["state"]["iteration"] + 1))


async def test_events_resume(engine: Served) -> None:
    await engine.post("/completion", {"prompt": "a", "n_predict": 5})
    (update,) = await read_updates(engine, 1, last_event_id="2")
    assert [iteration["i"] for iteration in update["iterations"]] == [3, 4, 5]
    assert not update["gap"]
    (update,) = await read_updates(engine, 1, last_event_id="99")
    assert update["gap"]
    (update,) = await read_updates(engine, 1, last_event_id="nonsense")
    assert update["iterations"] == []


@pytest.mark.parametrize(
    ("given", "kept"), [("chat-warm", "chat-warm"), ("a\x00b\nc", "abc"), ("  x  ", "x"), ("ä" * 50, "ä" * 40), ("\u202ex", "x")]
)
def test_labels_are_printable_and_short(given: str, kept: str) -> None:
    assert clean_label(given) == kept
