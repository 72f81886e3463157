"""Each state of a server and each reason as pages tell them; and what an open page says while a process of the console is gone.

The servers are stubs beside the product's own, registered once for all tests here; the last tests wait for what takes a minute.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_operator import open_server, slot
from tests.support.engine import running_engine
from tests.support.requests import post
from tests.support.stack import Stack, pid_of, valkey_of
from tests.support.stub_servers import (
    FakeLlamaServer,
    FakeRouter,
    FakeServer,
    FakeVllm,
    busy_slot,
    running,
    unused_port,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
WORKING = "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"
SEEN_MS = 20_000


def router() -> FakeRouter:
    models = {"busy": FakeLlamaServer(slots=[busy_slot()]), "cold": FakeLlamaServer(), "resting": FakeLlamaServer()}
    status = {"busy": {"value": "loaded"}, "cold": {"value": "unloaded"}, "resting": {"value": "sleeping"}}
    return FakeRouter(models=models, status=status)


@dataclass(frozen=True)
class Case:
    """A server, and what its page must say: its health in words, the mark beside them, and why each missing part is missing."""

    server: FakeServer | None
    words: str
    mark: str
    slots: str = ""
    figures: tuple[tuple[str, str], ...] = ()
    kind: str = "llama_server"


METRICS_OFF = "it is on with --metrics"
CASES = {
    "loading": Case(FakeLlamaServer(loading=True), "Loading the model", "load", "Loading the model.", (("queue", "Loading"),)),
    "locked": Case(FakeLlamaServer(api_key="right"), "Key needed", "lock", "Key needed.", (("gen", "does not answer"),)),
    "asleep": Case(FakeLlamaServer(sleep_after_s=0), "Asleep", "sleep", "watching does not wake it"),
    "gone": Case(None, "Down: connection refused", "down", "Down: connection refused.", (("queue", "connection refused"),)),
    "bare": Case(FakeLlamaServer(), "Idle", "up", "", (("queue", METRICS_OFF),)),
    "hidden": Case(
        FakeLlamaServer(slots_off=True, metrics=WORKING), "Idle", "up", "started with --no-slots", (("stall", "--no-slots"),)
    ),
    "several": Case(router(), "Serving", "up", "", (("queue", METRICS_OFF),)),
    "vllm": Case(FakeVllm(), "Serving", "up", "vLLM does not report its slots", (("stall", "does not report"),), "vllm"),
    "plain": Case(FakeVllm(metrics=None), "Up", "up", "", (("gen", "no /metrics at this address"),), "vllm"),
    "silent": Case(FakeLlamaServer(slots=[busy_slot()]), "Busy, no answer for", "silent"),
    "standing": Case(FakeLlamaServer(slots=[busy_slot()]), "Up but not serving, no token for", "stuck"),
}
AT_ONCE = [name for name in CASES if name not in ("silent", "standing")]


@dataclass
class Fleet:
    """The registered stubs by name: their addresses and the numbers of their pages."""

    urls: dict[str, str]
    ids: dict[str, int]

    def open(self, page: Page, name: str) -> Locator:
        """The page's head, where the health stands."""
        page.goto(f"/servers/{self.ids[name]}/")
        return page.locator("[data-health]")


def register(stack: Stack, name: str, kind: str, url: str) -> int:
    """As a row beside the product's own server, which has every other column as a new one has it."""
    with closing(sqlite3.connect(stack.var / "slotboard.sqlite3", timeout=20)) as database, database:
        database.row_factory = sqlite3.Row
        row = dict(database.execute("SELECT * FROM scheduler_api_server WHERE name = 'local'").fetchone())
        row |= {"name": name, "kind": kind, "base_url": url}
        del row["id"]
        holes = ", ".join("?" * len(row))
        made = database.execute(f"INSERT INTO scheduler_api_server ({', '.join(row)}) VALUES ({holes})", tuple(row.values()))
        assert made.lastrowid is not None
        return made.lastrowid


def remove(stack: Stack, ids: list[int]) -> None:
    """The stack is shared: other tests meet the servers that they expect, and no alert of these."""
    with closing(sqlite3.connect(stack.var / "slotboard.sqlite3", timeout=20)) as database, database:
        held = ", ".join(map(str, ids))
        ours = f"SELECT id FROM scheduler_api_alert WHERE server_id IN ({held})"
        database.execute(f"DELETE FROM scheduler_api_delivery WHERE alert_id IN ({ours})")
        for table in ("alert", "silence", "rollup"):
            database.execute(f"DELETE FROM scheduler_api_{table} WHERE server_id IN ({held})")
        database.execute(f"DELETE FROM scheduler_api_server WHERE id IN ({held})")


@pytest.fixture(scope="module")
def fleet(stack: Stack) -> Iterator[Fleet]:
    with ExitStack() as started:
        urls = {}
        for name, case in CASES.items():
            server = started.enter_context(running(case.server)) if case.server is not None else None
            urls[name] = server.url if server is not None else f"http://127.0.0.1:{unused_port()}"
        ids = {name: register(stack, name, case.kind, urls[name]) for name, case in CASES.items()}
        silent = CASES["silent"].server
        assert silent is not None
        deadline = time.monotonic() + 20
        while not silent.seen["/slots"]:
            assert time.monotonic() < deadline, "the observer did not pick it up"
            time.sleep(0.05)
        silent.held.add("/slots")
        yield Fleet(urls, ids)
        silent.held.clear()
        remove(stack, list(ids.values()))


def mark_of(place: Locator) -> Locator:
    return place.locator("svg use").first


def no_part_is_empty(page: Page) -> None:
    """A figure without a value says why, and a part that is shown holds more than its heading."""
    for figure in page.locator("[data-figure]").all():
        if figure.locator("[data-v]").inner_text() == "unknown":
            expect(figure.locator("[data-w]")).not_to_be_empty()
    for part in page.locator("main section.sec").all():
        if part.is_visible():
            told = part.inner_text().replace(part.locator(".sec-h").first.inner_text(), "", 1)
            assert told.strip(), part.get_attribute("aria-labelledby")


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_state_is_told_by_words_a_mark_and_reasons(page: Page, fleet: Fleet, name: str) -> None:
    case = CASES[name]
    health = fleet.open(page, name)
    expect(health).to_have_text(case.words, timeout=SEEN_MS)
    expect(mark_of(health)).to_have_attribute("href", f"#m-{case.mark}")
    if case.slots:
        expect(page.locator("[data-noslots]")).to_contain_text(case.slots)
    for key, why in case.figures:
        figure = page.locator(f"[data-figure='{key}']")
        expect(figure.locator("[data-v]")).to_have_text("unknown")
        expect(figure.locator("[data-w]")).to_contain_text(why)
    no_part_is_empty(page)


def test_the_overview_tells_them_all_worst_first(page: Page, fleet: Fleet) -> None:
    page.goto("/")
    for name in AT_ONCE:
        card = page.locator("li.card").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(mark_of(card)).to_have_attribute("href", f"#m-{CASES[name].mark}")
        expect(card.locator(".word")).to_contain_text(CASES[name].words)
    names = page.locator("li.card h2 a").all_inner_texts()
    assert names.index("gone") < names.index("locked") < names.index("loading") < names.index("bare") < names.index("asleep")
    expect(page.locator("nav.filters")).to_contain_text("1 down")
    asleep = CASES["asleep"].server
    assert isinstance(asleep, FakeLlamaServer)
    assert asleep.woken == 0


def test_models_and_engines_of_one_address_have_a_row_each(page: Page, fleet: Fleet) -> None:
    fleet.open(page, "several")
    rows = page.locator("[data-units] tbody tr")
    for row, words, mark in zip(rows.all(), ("Serving", "Not loaded", "Asleep"), ("up", "idle", "sleep"), strict=True):
        expect(row).to_contain_text(words)
        expect(mark_of(row)).to_have_attribute("href", f"#m-{mark}")
    expect(slot(page, 0)).to_contain_text("busy")
    several = CASES["several"].server
    assert isinstance(several, FakeRouter)
    assert several.woken == []
    fleet.open(page, "vllm")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text(re.compile(r"Serving\s*3\s*2\D*42 %"))
    expect(rows.nth(1)).to_contain_text("Idle")


def test_a_busy_server_that_does_not_answer_is_silent_and_not_down(page: Page, fleet: Fleet) -> None:
    health = fleet.open(page, "silent")
    expect(health).to_contain_text("Busy, no answer for", timeout=SEEN_MS)
    expect(mark_of(health)).to_have_attribute("href", "#m-silent")
    expect(page.locator("[data-trouble]")).to_contain_text("What stands below is what was seen last.")
    expect(slot(page, 0)).to_contain_text("generating")
    assert CASES["silent"].server is not None
    assert CASES["silent"].server.pending == 1


def work(url: str, **body: object) -> None:
    """A request whose answer nobody waits for; it ends with its server."""

    def send() -> None:
        with suppress(OSError, http.client.HTTPException):
            post(url, body)

    threading.Thread(target=send, daemon=True).start()


def test_every_reason_to_wait_is_said_on_the_row(page: Page, stack: Stack) -> None:
    """Four slots under a barrier: one takes in its prompt, and each of the others waits for something else."""
    flags = ("--backend", "simulated", "-np", "4", "-c", "65536", "-b", "512", "--no-kv-unified")
    with running_engine(*flags, "--phase", "barrier") as engine:
        pk = register(stack, "barrier", "engine", engine.url)
        try:
            page.goto(f"/servers/{pk}/")
            expect(page.locator("[data-live]")).to_have_text("Live", timeout=SEEN_MS)
            expect(slot(page, 3)).to_contain_text("idle", timeout=SEEN_MS)
            work(f"{engine.url}/completion", prompt=[300 + i % 50 for i in range(12_000)], n_predict=4, id_slot=0)
            expect(slot(page, 0)).to_contain_text("prompt")
            work(f"{engine.url}/completion", prompt=[300] * 50, n_predict=4, id_slot=1)
            work(f"{engine.url}/infill", input_prefix="the cold", input_suffix=" queue", n_predict=4, id_slot=2)
            expect(slot(page, 2)).to_contain_text("group mismatch with slot 0")
            expect(slot(page, 1)).to_contain_text(re.compile(r"held: cohort 1 waits for slot 0 \(\d+ %\)"), timeout=SEEN_MS)
            work(f"{engine.url}/completion", prompt=[301] * 50, n_predict=4, id_slot=3)
            expect(slot(page, 3)).to_contain_text("queued: cohort 1 is sealed, joins 2")
            work(f"{engine.url}/completion", prompt=[302] * 50, n_predict=4)
            queue = page.locator("[data-figure='queue']")
            expect(queue.locator("[data-v]")).to_have_text("1")
            expect(queue.locator("[data-w]")).to_have_text("no free slot yet")
            for number, mark in enumerate(("prompt", "held", "waiting", "queued")):
                expect(mark_of(slot(page, number).locator(".state"))).to_have_attribute("href", f"#m-{mark}")
            expect(page.locator("[data-cohort]")).to_contain_text("sealed")
            expect(page.locator("[data-chips]")).to_contain_text("phase: barrier, cohort 1 (1 of 3 done)")
        finally:
            remove(stack, [pk])


def test_a_state_changes_on_the_open_page(page: Page, fleet: Fleet) -> None:
    server = CASES["loading"].server
    assert server is not None
    health = fleet.open(page, "loading")
    expect(health).to_have_text("Loading the model")
    page.evaluate("window.kept = true")
    server.loading = False
    expect(health).to_have_text("Idle", timeout=SEEN_MS)
    expect(slot(page, 0)).to_contain_text("idle")
    server.loading = True
    expect(health).to_have_text("Loading the model", timeout=SEEN_MS)
    server.loading = False
    gone = fleet.open(page, "gone")
    expect(gone).to_have_text("Down: connection refused")
    page.evaluate("window.kept = true")
    with running(FakeLlamaServer(), int(fleet.urls["gone"].rpartition(":")[2])):
        expect(gone).to_have_text("Idle", timeout=SEEN_MS)
    expect(gone).to_have_text("Down: connection refused", timeout=SEEN_MS)
    assert page.evaluate("window.kept") is True


def tell(pid: int | None, how: signal.Signals) -> None:
    assert pid is not None
    os.kill(pid, how)


def test_a_page_outlives_the_web_process(page: Page, stack: Stack, console: list[str]) -> None:
    open_server(page)
    page.evaluate("window.kept = true")
    overview = page.context.new_page()
    overview.goto("/")
    expect(overview.locator("[data-overview-live]")).to_have_text("Live", timeout=SEEN_MS)
    web = pid_of(stack.marker, "uvicorn")
    tell(web, signal.SIGSTOP)  # a killed one is back so soon that the overview may not have asked meanwhile
    expect(overview.locator("[data-overview-live]")).to_have_text(
        re.compile(r"Not answering, as of [\d.]+ s ago"), timeout=SEEN_MS
    )
    tell(web, signal.SIGKILL)
    expect(page.locator("[data-live]")).to_have_text(re.compile(r"Reconnecting, last seen [\d.]+ s ago"))
    expect(slot(page, 0)).to_contain_text("idle")
    expect(page.locator("[data-live]")).to_have_text("Live", timeout=SEEN_MS)
    expect(overview.locator("[data-overview-live]")).to_have_text("Live", timeout=SEEN_MS)
    assert page.evaluate("window.kept") is True
    console.clear()  # Chromium logs each attempt that met no server


def test_a_page_outlives_valkey(page: Page, stack: Stack, console: list[str]) -> None:
    open_server(page)
    page.evaluate("window.kept = true")
    valkey = valkey_of(stack.marker)
    tell(valkey, signal.SIGSTOP)
    expect(page.locator("[data-live]")).to_have_text(
        re.compile(r"Valkey cannot be reached.*, last seen [\d.]+ s ago"), timeout=SEEN_MS
    )
    expect(slot(page, 0)).to_contain_text("idle")
    tell(valkey, signal.SIGKILL)
    expect(page.locator("[data-live]")).to_have_text("Live", timeout=SEEN_MS)
    assert page.evaluate("window.kept") is True
    console.clear()


def test_work_without_a_token_is_not_called_serving(page: Page, fleet: Fleet) -> None:
    health = fleet.open(page, "standing")
    expect(health).to_contain_text("Up but not serving, no token for", timeout=70_000)
    expect(mark_of(health)).to_have_attribute("href", "#m-stuck")
    expect(page.locator("[data-trouble]")).to_contain_text("Up but not serving")
    expect(slot(page, 0)).to_contain_text("generating")
    page.goto("/")
    expect(page.locator("li.card").filter(has_text="standing").locator(".word")).to_contain_text("Up but not serving")


def test_a_page_outlives_the_observer(page: Page, stack: Stack, fleet: Fleet) -> None:
    """At the end: the one that takes its place has seen nothing stand still yet."""
    open_server(page)
    page.evaluate("window.kept = true")
    observer = pid_of(stack.marker, "manage.py observe")
    tell(observer, signal.SIGSTOP)
    expect(page.locator("[data-live]")).to_have_text(re.compile(r"Live, last frame [\d.]+ s ago"), timeout=SEEN_MS)
    expect(slot(page, 0)).to_contain_text("idle")
    tell(observer, signal.SIGKILL)
    expect(page.locator("[data-live]")).to_have_text("Live", timeout=SEEN_MS)
    assert page.evaluate("window.kept") is True
