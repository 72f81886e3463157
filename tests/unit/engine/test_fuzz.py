"""No body is a fault of the server, whatever stands in it: each field that the code reads is tried with each hostile value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from engine.http.app import routes_of
from tests.support.fuzz import HOSTILE, NOT_JSON, recorded_fields
from tests.unit.engine.harness import Served, served

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
# A request of each route with a body that is right.
RIGHT: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "a", "n_predict": 1},
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {**CHAT, "max_tokens": 1},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 1},
    "/embeddings": {"input": "a"},
    "/v1/embeddings": {"input": "a"},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [300]},
    "/apply-template": CHAT,
    "/slots/0?action=save": {"filename": "fuzzed"},
    "/scheduler/policy": {"expected_version": 0, "set": {"prefill_chunk": 8}},
}
POLICY = "/scheduler/policy"


class Shared:
    """One engine for a whole module of examples."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Served) -> None:
        self._loop, self._engine = loop, engine

    def send(self, path: str, raw: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
        given = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        method = "PATCH" if path.startswith(POLICY) else "POST"
        return self._loop.run_until_complete(self._engine.client.request(method, path, content=raw, headers=given))

    def get(self, path: str) -> httpx2.Response:
        return self._loop.run_until_complete(self._engine.client.get(path))

    @property
    def routes(self) -> list[Route]:
        return [route for route in routes_of(self._engine.state) if isinstance(route, Route)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    loop = asyncio.new_event_loop()
    context = served("--slot-save-path", str(tmp_path_factory.mktemp("slots")), "-n", "2", "--embeddings")
    try:
        yield Shared(loop, loop.run_until_complete(context.__aenter__()))
    finally:
        loop.run_until_complete(context.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def still_serves(engine: Shared) -> bool:
    answer = engine.send("/completion", b'{"prompt": "a", "n_predict": 2, "ignore_eos": true}')
    return answer.status_code == 200 and answer.json()["tokens_predicted"] == 2


def refused(response: httpx2.Response) -> dict[str, Any]:
    """The error of a request that was refused as the client's fault."""
    error: dict[str, Any] = response.json()["error"]
    assert response.status_code == error["code"], response.text
    assert error["type"] in ("invalid_request_error", "exceed_context_size_error"), response.text
    assert error["message"]
    return error


def fields_of(engine: Shared, path: str) -> list[str]:
    """What the code looks up in a body of this route: a new field is in this list as soon as it is read."""
    with recorded_fields() as seen:
        engine.send(path, json.dumps(RIGHT[path]).encode())
    return sorted(name for name in seen if "." not in name)


def names(error: dict[str, Any], field: str) -> bool:
    """Whether the error says which field it is about; a number that no double can hold is a fault of the body as a whole."""
    if "field" not in error:
        return str(error["message"]).startswith("The body is not valid JSON") or error["type"] == "exceed_context_size_error"
    return field in (str(error["field"]).split("[")[0].split(".")[0], error["field"]) or f'"{field}"' in error["message"]


def with_field(path: str, field: str, value: str) -> bytes:
    rest = [f"{json.dumps(name)}:{json.dumps(each)}" for name, each in RIGHT[path].items() if name != field]
    return ("{" + ",".join([*rest, f"{json.dumps(field)}:{value}"]) + "}").encode()


def test_every_route_that_takes_a_body_is_tried(engine: Shared) -> None:
    tried = {path.split("?")[0] for path in RIGHT}
    same = {"/completions": "/completion", "/chat/completions": "/v1/chat/completions", "/slots/{id}": "/slots/0"}
    same |= {"/embedding": "/embeddings", "/rerank": "/v1/rerank", "/reranking": "/v1/rerank", "/v1/reranking": "/v1/rerank"}
    taking = {same.get(route.path, route.path) for route in engine.routes if (route.methods or set()) & {"POST", "PATCH"}}
    # The first reads none, the second an array without names; the third needs a server of its own, see test_vectors.
    assert taking - tried <= {"/props", "/lora-adapters", "/v1/rerank"}


@pytest.mark.parametrize("path", RIGHT)
def test_each_field_with_each_hostile_value(engine: Shared, path: str) -> None:
    fields = fields_of(engine, path)
    assert fields
    for field in fields:
        n_refused = 0
        for value in HOSTILE:
            response = engine.send(path, with_field(path, field, value))
            assert response.status_code in (200, 400, 409, 422), f"{field}: {value[:40]}: {response.text}"
            if response.status_code in (400, 422):
                n_refused += 1
                error = refused(response)
                assert names(error, field) or (path == POLICY and field == "set"), f"{field}: {value[:40]}: {response.text}"
        assert n_refused, f"{field} takes anything"
    assert still_serves(engine)


@pytest.mark.parametrize("path", RIGHT)
@pytest.mark.parametrize("raw", NOT_JSON, ids=lambda raw: repr(raw[:20]))
def test_what_is_no_json_is_refused_wherever_it_stands(engine: Shared, path: str, raw: bytes) -> None:
    refused(engine.send(path, raw))
    refused(engine.send(path, b'{"n_predict":1,"x":' + raw + b"}"))
    refused(engine.send(path, b'{"prompt":[' + raw + b"]}"))


def test_json_cut_off_at_any_byte_is_refused(engine: Shared) -> None:
    whole = json.dumps({**RIGHT["/completion"], "stop": ["é", "\u2028"], "seed": 1.5e3}, ensure_ascii=False).encode()
    for size in range(1, len(whole)):
        refused(engine.send("/completion", whole[:size]))


@pytest.mark.parametrize("kind", ["", "text/plain", "application/xml", "multipart/form-data", "\xff\xfe", "a" * 4000])
def test_the_content_type_does_not_matter(engine: Shared, kind: str) -> None:
    for path in ("/completion", "/tokenize"):
        assert engine.send(path, json.dumps(RIGHT[path]).encode(), {"content-type": kind}).status_code == 200


@pytest.mark.parametrize("value", ["", " ", "\xff\xfe", "x" * 60_000, "-1", "9" * 500, "Bearer " + "k" * 5000, "1\t2"])
@pytest.mark.parametrize(
    "name", ["x-client-label", "authorization", "x-api-key", "origin", "last-event-id", "content-type", "x-y"]
)
def test_absurd_headers_change_nothing(engine: Shared, name: str, value: str) -> None:
    answer = engine.send("/completion", json.dumps(RIGHT["/completion"]).encode(), {name: value})
    assert answer.status_code == 200


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=" + "9" * 30, "limit=0", "limit=1e3", "limit=%FF", "after=٣"])
def test_query_parameters_are_checked(engine: Shared, query: str) -> None:
    error = refused(engine.get(f"/scheduler/iterations?{query}"))
    assert error["field"] == query.partition("=")[0]


@pytest.mark.parametrize("slot", ["-1", "2", "x", "1e0", "9" * 30, "%00", "٣", "..", "0%2F1"])
def test_slot_numbers_are_checked(engine: Shared, slot: str) -> None:
    assert engine.send(f"/slots/{slot}?action=erase", b"{}").status_code in (400, 404)
    assert still_serves(engine)


text = st.text(st.characters(codec="utf-8"), max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
NAMES: dict[str, list[str]] = {}


def bodies(draw: Callable[[st.SearchStrategy[Any]], Any], engine: Shared, path: str) -> dict[str, Any]:
    names = NAMES.setdefault(path, fields_of(engine, path))
    changed: dict[str, Any] = draw(st.dictionaries(st.sampled_from(names), anything, max_size=6))
    return {**RIGHT[path], **changed}


@given(data=st.data(), path=st.sampled_from(sorted(RIGHT)))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_several_fields_at_once(engine: Shared, data: st.DataObject, path: str) -> None:
    raw = json.dumps(bodies(data.draw, engine, path)).encode()
    response = engine.send(path, raw)
    assert response.status_code in (200, 400, 409, 422), response.text
    assert '"server_error"' not in response.text
    if response.status_code in (400, 422):
        refused(response)


@given(data=st.data(), path=st.sampled_from(sorted(RIGHT)))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_damaged_bytes(engine: Shared, data: st.DataObject, path: str) -> None:
    raw = bytearray(json.dumps(RIGHT[path]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not raw:
            break
    response = engine.send(path, bytes(raw))
    assert response.status_code in (200, 400, 409, 422), response.text
    assert '"server_error"' not in response.text
