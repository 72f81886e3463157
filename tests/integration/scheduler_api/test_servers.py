from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from scheduler_api import servers
from scheduler_api.exceptions import RegistrationRefused, ServerUnreachable
from scheduler_api.kinds.llama_state import METRICS_OFF, SLOTS_OFF
from scheduler_api.models import Server
from tests.support.stub_servers import (
    VLLM_METRICS,
    FakeEngine,
    FakeLlamaServer,
    FakeRedirect,
    FakeRouter,
    FakeVllm,
    running,
    unused_port,
)


def test_an_engine_is_recognised(admin: User) -> None:
    with running(FakeEngine()) as engine:
        server = servers.register("local", engine.url + "/", by=admin)
    assert (server.kind, server.base_url, server.created_by) == ("engine", engine.url, admin)


def test_a_llama_server_is_recognised(db: None) -> None:
    with running(FakeLlamaServer()) as stock:
        assert servers.register("stock", stock.url).kind == "llama_server"


def test_cases_1_and_2_what_a_llama_server_does_not_offer_is_found_with_its_reason(db: None) -> None:
    stock = FakeLlamaServer()
    stock.props |= {"endpoint_slots": False, "endpoint_metrics": False}
    with running(stock):
        found = servers.probe(stock.url)
    assert (found.kind, found.missing) == ("llama_server", (SLOTS_OFF, METRICS_OFF))
    assert all("--" in why for why in found.missing)


def test_case_4_a_router_is_recognised(db: None) -> None:
    with running(FakeRouter(models={"a": FakeLlamaServer()}, status={"a": {"value": "unloaded"}})) as router:
        found = servers.probe(router.url)
        assert router.woken == []
    assert (found.kind, "several models" in found.text) == ("llama_server", True)


@pytest.mark.parametrize("metrics", [VLLM_METRICS, None])
def test_a_vllm_is_recognised_by_its_metrics_or_its_models(db: None, metrics: str | None) -> None:
    with running(FakeVllm(metrics=metrics)) as vllm:
        assert servers.register("vllm", vllm.url).kind == "vllm"
        assert bool(servers.probe(vllm.url).missing) is (metrics is None)


@pytest.mark.parametrize("separator", [":", "_"])
def test_case_12_sglang_is_named_not_guessed_at(db: None, separator: str) -> None:
    """Its names changed from `sglang:` to `sglang_` and back."""
    metrics = f'# HELP sglang{separator}num_running_reqs x\nsglang{separator}num_running_reqs{{model_name="q"}} 1\n'
    with running(FakeVllm(metrics=metrics)) as other, pytest.raises(RegistrationRefused, match="look like those of SGLang"):
        servers.register("sglang", other.url)


def test_case_3_a_llama_server_that_needs_a_key_is_not_registered_without_it(db: None) -> None:
    with running(FakeLlamaServer(api_key="right")) as stock:
        with pytest.raises(RegistrationRefused, match="asks for a key") as refusal:
            servers.register("stock", stock.url)
        assert refusal.value.field == "api_key"
        assert servers.register("stock", stock.url, api_key="right").kind == "llama_server"


@pytest.mark.parametrize("key", ["", "wrong"])
def test_a_server_that_wants_another_key_is_not_guessed_at(db: None, key: str) -> None:
    with running(FakeEngine(api_key="right")) as engine:
        with pytest.raises(RegistrationRefused, match="key") as refusal:
            servers.register("local", engine.url, api_key=key)
        assert refusal.value.field == "api_key"
        assert servers.register("local", engine.url, api_key="right").kind == "engine"


def test_a_loading_server_is_not_guessed_at(db: None) -> None:
    with running(FakeLlamaServer(loading=True)) as stock, pytest.raises(RegistrationRefused, match="loads its model"):
        servers.register("stock", stock.url)


def test_nothing_there(db: None) -> None:
    with pytest.raises(ServerUnreachable, match="connection refused"):
        servers.register("gone", f"http://127.0.0.1:{unused_port()}")


def test_a_named_kind_needs_no_answer(db: None) -> None:
    assert servers.register("later", f"http://127.0.0.1:{unused_port()}", kind="llama_server").pk


def test_a_name_is_taken_once(db: None) -> None:
    servers.register("a", "http://127.0.0.1:9", kind="engine")
    with pytest.raises(RegistrationRefused, match="already called a") as refusal:
        servers.register(" a ", "http://127.0.0.1:9", kind="engine")
    assert refusal.value.field == "name"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://[fe80::1]:80",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]",
        "http://100.100.100.200",
        "http://metadata.google.internal./",
        "http://0.0.0.0:8080",
        "http://2852039166/",  # 169.254.169.254 as one number, which resolvers accept
    ],
)
def test_case_35_metadata_and_link_local_addresses_are_blocked(db: None, url: str) -> None:
    with pytest.raises(RegistrationRefused, match="link-local or metadata"):
        servers.register("cloud", url, kind="engine")
    assert not Server.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "file:///etc/passwd",
        "host:8080",
        "http://",
        "http://me:key@host",
        "http://host:99999",
        "http://host?x=1",
        "http://a b",
    ],
)
def test_what_is_no_base_url_is_refused(db: None, url: str) -> None:
    with pytest.raises(RegistrationRefused):
        servers.register("odd", url, kind="engine")


def test_case_35_private_addresses_are_where_servers_live(db: None) -> None:
    for number, url in enumerate(("http://10.0.0.7:8080", "http://192.168.1.2/llm/", "https://127.0.0.1")):
        servers.register(f"s{number}", url, kind="llama_server")
    assert Server.objects.get(name="s1").base_url == "http://192.168.1.2/llm"


def test_case_35_a_key_stays_with_its_origin(db: None) -> None:
    server = servers.register("a", "http://127.0.0.1:9", kind="engine", api_key="secret")
    assert servers.move(server, "http://127.0.0.1:9/prefix").api_key == "secret"
    assert servers.move(server, "http://127.0.0.1:10").api_key == ""


def test_case_35_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(db: None) -> None:
    with running(FakeEngine(api_key="secret")) as goal, running(FakeRedirect()) as moved:
        moved.elsewhere = goal.url
        with pytest.raises(RegistrationRefused, match="redirects"):
            servers.register("moved", moved.url, api_key="secret")
        assert moved.keys == ["Bearer secret"]
        assert goal.keys == []
