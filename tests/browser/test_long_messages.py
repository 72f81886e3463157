"""A message that is too long for a live feed, over a real socket to the web server as the Procfile starts it."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.stack import Stack, get, pid_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

LONGEST = 64 << 10


def code_at_the_end(socket: ClientConnection) -> int | None:
    """The code that the server closes it with; raises TimeoutError when it does not."""
    try:
        while True:
            socket.recv(timeout=20)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else None


def test_it_ends_its_own_socket_and_nothing_else(page: Page, stack: Stack) -> None:
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())

    def feed() -> ClientConnection:
        url = stack.web.replace("http", "ws", 1) + "/ws/servers/1/"
        return connect(url, additional_headers={"Cookie": cookies, "Origin": stack.web}, max_size=None, proxy=None)

    def told(socket: ClientConnection, kind: str) -> bool:
        return any(json.loads(socket.recv(timeout=20))["type"] == kind for _ in range(50))

    before = pid_of(stack.marker, "uvicorn")
    with feed() as stays, feed() as ends:
        assert told(stays, "snapshot")
        assert told(ends, "snapshot")
        stays.send("x" * LONGEST)
        ends.send("x" * (LONGEST + 1))
        assert code_at_the_end(ends) == 1009
        stays.send('{"type": "resync"}')
        assert told(stays, "snapshot"), "one as long as is allowed is passed over, and the feed goes on"
    assert get(f"{stack.web}/health/") == b"ok"
    with feed() as again:
        assert told(again, "snapshot")
    assert before is not None
    assert pid_of(stack.marker, "uvicorn") == before
