"""A tab that is open for an hour: what the live page holds in memory while an hour of frames of a busy server goes through it.

The page is the product's own, in a real Chromium, from a stack started as `make run` starts it. Its WebSocket is answered by this
benchmark, which plays a made-up busy server (tests.support.sample_states, eight slots) through the product's own deltas, one for
each frame that the page draws: 14,400 of them, four for each second of the hour, in a few minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import CDPSession, Page, WebSocketRoute, sync_playwright

from benchmarks.common import finish, table
from benchmarks.fanout import PASSWORD, stack
from scheduler_api import frames
from tests.support.sample_states import FakeServer, Json

FRAMES_A_SECOND = 4
HOUR_S = 3600
BURST = 24  # deltas sent before the page is asked whether it has drawn them
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@dataclass(frozen=True, slots=True)
class Reading:
    """After a full collection. `heap_mb`: JavaScript's, in megabytes."""

    minute: float
    heap_mb: float
    nodes: int
    listeners: int


class Player:
    """Answers the page's socket in the server's place."""

    def __init__(self, page: Page, seconds: float) -> None:
        self._page = page
        self._fake = FakeServer(1, "local", n_slots=8, load=0.4, prompt_tokens=(200, 9000), t=time.time() - seconds)
        self._state: Json = self._fake.state()
        self._socket: WebSocketRoute | None = None
        page.route_web_socket("**/ws/servers/1/", self._open)

    def _open(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        socket.on_message(lambda _: self._snapshot())
        self._snapshot()

    def _snapshot(self) -> None:
        assert self._socket is not None
        self._socket.send(json.dumps({"type": "snapshot", "state": self._state}))

    def frame(self) -> None:
        """A quarter of a second of the server's life."""
        until = self._fake.t + 1 / FRAMES_A_SECOND
        while self._fake.t < until:
            self._fake.step()
        new = self._fake.state()
        assert self._socket is not None
        self._socket.send(json.dumps({"type": "delta", **frames.diff(self._state, new)}))
        self._state = new

    def drawn(self) -> None:
        """Until the page has drawn what it got."""
        self._page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def read(session: CDPSession, minute: float) -> Reading:
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    heap: dict[str, Any] = session.send("Runtime.getHeapUsage")
    counts: dict[str, Any] = session.send("Memory.getDOMCounters")
    return Reading(minute, heap["usedSize"] / 1e6, counts["nodes"], counts["jsEventListeners"])


def play(page: Page, minutes: float) -> list[Reading]:
    n = int(minutes * 60 * FRAMES_A_SECOND)
    player = Player(page, minutes * 60)
    page.goto("/servers/1/")
    page.wait_for_selector("[data-live]")
    session = page.context.new_cdp_session(page)
    readings = []
    for done in range(n):
        if done % max(1, n // 6) == 0:
            player.drawn()
            readings.append(read(session, done / 60 / FRAMES_A_SECOND))
        player.frame()
        if done % BURST == 0:
            player.drawn()
    player.drawn()
    return [*readings, read(session, minutes)]


def signed_in(page: Page) -> None:
    page.goto("/login/")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heap")
    parser.add_argument("--minutes", type=float, default=HOUR_S / 60, help="of the server's life")
    args = parser.parse_args()
    with stack() as running, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM") or None, args=FLAGS)
        page = browser.new_context(
            base_url=f"http://127.0.0.1:{running.web}", viewport={"width": 1440, "height": 1000}
        ).new_page()
        page.set_default_timeout(60_000)
        signed_in(page)
        readings = play(page, args.minutes)
        browser.close()
    print(
        table(
            ["minute", "heap MB", "nodes", "listeners"],
            [[f"{r.minute:.0f}", f"{r.heap_mb:.2f}", str(r.nodes), str(r.listeners)] for r in readings],
        )
    )
    # The first sixth fills what is bounded: 120 iterations and tasks, the lanes' minutes.
    early, last = readings[len(readings) // 2], readings[-1]
    figures = {
        "heap_mb": last.heap_mb,
        "heap_growth_mb": last.heap_mb - early.heap_mb,
        "nodes_growth": float(last.nodes - early.nodes),
    }
    finish("heap", figures | {"listeners_growth": float(last.listeners - early.listeners), "minutes": args.minutes})


if __name__ == "__main__":
    main()
