"""The client's own rules, before a transport that answers what a test tells it to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from slotboard_client import Client, ClientError, NotFound, Refused, Unreachable
from slotboard_client.errors import Refused as Problem

TOKEN = "slotboard_a-secret"
SERVER = {"id": 1, "name": "local", "kind": "engine", "base_url": "http://x", "enabled": True, "health": None}

type Answer = httpx2.Response
type Console = Callable[[Callable[[httpx2.Request], Answer]], Client]


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A client whose requests a function answers; it never sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    whole = httpx2.Client

    def made(answer: Callable[[httpx2.Request], Answer]) -> Client:
        monkeypatch.setattr(httpx2, "Client", lambda **given: whole(**given, transport=httpx2.MockTransport(answer)))
        return Client("https://ops.example.org/llm/", TOKEN)

    yield made
    assert all(each >= 0 for each in slept)


def page(items: list[Any], following: str | None = None) -> Answer:
    return httpx2.Response(200, json={"items": items, "total": len(items), "next": following})


def problem(status: int, **more: Any) -> Answer:
    return httpx2.Response(status, json={"type": "about:blank", "title": "t", "status": status, "detail": "Why.", **more})


def test_a_list_is_read_page_by_page_with_its_filters(console: Console) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> Answer:
        asked.append(request)
        if "offset" in request.url.params:
            return page([SERVER | {"id": 2}])
        return page([SERVER], "/llm/api/servers?name=local&limit=1&offset=1")

    assert [each.id for each in console(answer).servers("local")] == [1, 2]
    assert [str(each.url) for each in asked] == [
        "https://ops.example.org/llm/api/servers?limit=200&name=local",
        "https://ops.example.org/llm/api/servers?name=local&limit=1&offset=1",
    ]
    assert asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_the_token_goes_to_no_other_address(console: Console) -> None:
    hosts: list[str] = []

    def answer(request: httpx2.Request) -> Answer:
        hosts.append(request.url.host)
        return page([SERVER], "//evil.example/llm/api/servers")

    with pytest.raises(Unreachable, match="not its own"):
        list(console(answer).servers())
    with pytest.raises(Unreachable, match="sends on to https://evil"):
        console(lambda _: httpx2.Response(302, headers={"location": "https://evil.example/"})).policy(1)
    assert hosts == ["ops.example.org"]


def test_a_problem_is_an_error_with_all_that_it_says(console: Console) -> None:
    told = {"type": "urn:slotboard:problem:version-conflict", "field": "phase", "current": {"version": 4}}
    with pytest.raises(Refused) as caught:
        console(lambda _: problem(409, **told)).switch(1, {"phase": "barrier"}, reason="why")
    assert (caught.value.kind, caught.value.field, caught.value.status, caught.value.text) == (
        "version-conflict",
        "phase",
        409,
        "Why.",
    )
    with pytest.raises(NotFound):
        console(lambda _: problem(404)).run(7)
    with pytest.raises(NotFound, match="no server 'none'"):
        console(lambda _: page([])).server("none")
    assert Problem(403, {"type": "about:blank"}).kind == ""


def test_a_read_goes_on_when_it_may_and_a_write_is_never_sent_twice(console: Console) -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> Answer:
        asked.append(request.method)
        return problem(429, retry_after_s=3) if len(asked) in (1, 2, 4) else page([])

    ready = console(answer)
    assert list(ready.servers()) == []
    with pytest.raises(Refused) as caught:
        ready.stop_run(1)
    assert (caught.value.retry_after_s, asked) == (3, ["GET", "GET", "GET", "POST"])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx2.Response(502, text="<html>Bad Gateway"), "not as a console does"),
        (httpx2.Response(200, text="<html>Log in"), "something else than JSON"),
        (httpx2.Response(200, json={"items": [{"id": 1}], "total": 1, "next": None}), "not as this client knows it"),
    ],
)
def test_what_is_no_console_is_said(console: Console, answer: Answer, told: str) -> None:
    with pytest.raises(Unreachable, match=told):
        list(console(lambda _: answer).servers())


def test_no_connection_is_said(console: Console) -> None:
    def refuse(request: httpx2.Request) -> Answer:
        raise httpx2.ConnectError("connection refused")

    with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
        console(refuse).result(1)


def test_waiting_ends_with_the_run_or_in_time(console: Console) -> None:
    run = {
        "scenario": "s",
        "server": 1,
        "server_name": "l",
        "arms": {},
        "pairs": 1,
        "progress": {"text": ""},
        "by": "",
        "verdict": "",
    }
    run |= {"id": 7, "created_at": "", "finished_at": None, "error": ""}
    states = iter(["queued", "running", "finished"])
    seen: list[str] = []
    ended = console(lambda _: httpx2.Response(200, json=run | {"state": next(states)})).wait(
        7, told=lambda each: seen.append(each.state)
    )
    assert (ended.state, ended.active, seen) == ("finished", False, ["queued", "running", "finished"])
    with pytest.raises(TimeoutError, match="not over after 0 s"):
        console(lambda _: httpx2.Response(200, json=run | {"state": "running"})).wait(7, limit_s=0)


def test_keys_that_a_newer_console_adds_are_kept(console: Console) -> None:
    [found] = console(lambda _: page([SERVER | {"colour": "red"}])).servers()
    assert found.raw["colour"] == "red"


def test_an_address_that_is_none_and_nothing_shows_the_token() -> None:
    for url in ("ops.example.org", "ftp://x", "http://"):
        with pytest.raises(ClientError, match="not an address"):
            Client(url, TOKEN)
    with Client("https://user:pw@ops.example.org/llm", TOKEN) as made:
        assert repr(made) == "Client(https://ops.example.org/llm)"
