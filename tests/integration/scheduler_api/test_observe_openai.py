"""The observer against OpenAI-compatible servers: whether they answer, and why nothing else is known of them."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from scheduler_api import kinds, servers
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.kinds.openai import OpenAiKind
from scheduler_api.kinds.openai_state import LIMITED, NO_COUNTS, NO_SLOTS, WHY_NOT
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.stub_openai import FakeOpenAi
from tests.support.stub_servers import VLLM_METRICS, FakeLlamaServer, FakeVllm, running

watched = pytest.mark.usefixtures("transactional_db", "valkey")


async def add(url: str, **more: Any) -> Server:
    return await sync_to_async(register)("other", "openai", url, **more)


@watched
async def test_it_is_up_or_not_and_every_missing_part_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "OpenAiKind", lambda model: OpenAiKind(model, look_every_s=0.3))
    with running(FakeOpenAi(api_key="right")) as other:
        server = await add(other.url, api_key="right", model="large")
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "up")
            assert (state["health"]["text"], state["info"]["model"], state["slots"], state["queue"]) == ("Up", "large", [], None)
            assert "does not list large" in state["missing"]["model"]
            assert (state["missing"]["slots"], state["missing"]["queue"]) == (NO_SLOTS, NO_COUNTS)
            assert state["switching"] == {"can": False, "why_not": WHY_NOT, "fields": {}}
            assert all(state["figures"][name] is None for name in ("prompt_tps", "gen_tps", "worst_stall_s"))
            series = [state["figures"][f"{name}_series"] for name in ("prompt", "gen", "queue", "stall")]
            assert {value for points in series for _, value in points} == {None}  # never zero
            assert state["fairness"] is None
            other.models = [{"id": "large", "max_model_len": 4096}]
            state = await watching.until(server, lambda state: "model" not in state["missing"])
            assert state["info"]["n_ctx_slot"] == 4096
            other.models_status = 503
            await watching.until(server, lambda state: state["health"]["state"] == "loading")
            other.models_status, other.api_key = 200, "another"
            await watching.until(server, lambda state: state["health"]["state"] == "unauthorised")
    assert set(other.seen) == {"/v1/models"}
    assert other.most_pending == 1


@watched
async def test_without_a_list_its_health_is_asked_and_a_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "OpenAiKind", lambda model: OpenAiKind(model, look_every_s=0.3))
    with running(FakeOpenAi(models=None)) as bare:
        server = await add(bare.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "up" and bare.seen["/health"] > 1)
    assert "(status 404)" in state["missing"]["model"]
    assert bare.seen["/v1/models"] == 1
    with running(FakeOpenAi(models_status=429)) as limited:
        server = await sync_to_async(register)("limited", "openai", limited.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: "model" in state["missing"])
    assert (state["health"]["state"], state["missing"]["model"], limited.seen["/v1/models"]) == ("up", LIMITED, 1)


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
def test_it_is_found_by_its_list_and_kept_without_the_v1_of_its_routes(db: None, path: str) -> None:
    with running(FakeOpenAi(health_status=404)) as other:
        server = servers.register("other", other.url + path)
        assert (server.kind, server.base_url) == ("openai", other.url)
        assert servers.probe(other.url + path).missing == (NO_SLOTS,)
        assert servers.move(server, other.url + "/base/v1").base_url == other.url + "/base"


def test_other_kinds_stay_what_they_are(db: None) -> None:
    """One that answers /health as a llama-server does and has no /props is told apart by what it lists."""
    with running(FakeOpenAi(models=[{"id": "q", "owned_by": "llamacpp"}])) as alike:
        assert servers.probe(alike.url).kind == "llama_server"
    with running(FakeLlamaServer()) as stock:
        assert servers.probe(stock.url + "/v1").kind == "llama_server"
    with running(FakeVllm(metrics=VLLM_METRICS)) as vllm:
        assert servers.register("v", vllm.url + "/v1", model="qwen").kind == "vllm"
    with running(FakeVllm(metrics="sglang:num_running_reqs 1\n")) as sglang:
        told = servers.probe(sglang.url)
        assert (told.kind, told.field, "Named as an OpenAI-compatible server" in told.text) == ("", "kind", True)
        assert servers.register("s", sglang.url, kind="openai").kind == "openai"


def test_a_model_is_named_only_where_requests_name_one(db: None) -> None:
    with pytest.raises(RegistrationRefused, match="for vLLM and OpenAI-compatible servers alone") as refusal:
        servers.register("e", "http://127.0.0.1:9", kind="engine", model="x")
    assert refusal.value.field == "model"
    with running(FakeOpenAi(api_key="right")) as other:
        with pytest.raises(RegistrationRefused, match="asks for a key"):
            servers.register("o", other.url)
        server = servers.register("o", other.url, api_key="right", model=" large ")
    assert (server.kind, server.model) == ("openai", "large")
