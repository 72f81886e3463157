"""A server that is not there: its alert comes by itself, is acknowledged and silenced; its rule is tested against the past."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Page, expect

from tests.support.stack import Stack
from tests.support.stub_servers import FakeEngine, running, unused_port

OPENS_MS = 40_000


@pytest.fixture
def _no_ghost_stays(stack: Stack) -> Iterator[None]:
    """The stack is shared: other tests meet the servers that they expect."""
    yield
    with closing(sqlite3.connect(stack.var / "slotboard.sqlite3", timeout=20)) as database, database:
        (ghost,) = database.execute("SELECT id FROM scheduler_api_server WHERE name = 'ghost'").fetchone()
        database.execute("DELETE FROM scheduler_api_delivery")
        for table in ("alert", "silence", "rollup"):
            database.execute(f"DELETE FROM scheduler_api_{table} WHERE server_id = ?", (ghost,))
        database.execute("DELETE FROM scheduler_api_server WHERE id = ?", (ghost,))


@pytest.mark.usefixtures("_no_ghost_stays")
def test_an_alert_comes_is_acknowledged_and_goes(page: Page) -> None:
    port = unused_port()
    page.goto("/servers/add/")
    page.get_by_label("Name").fill("ghost")
    page.get_by_label("Address").fill(f"http://127.0.0.1:{port}")
    page.get_by_label("Kind").select_option("engine")
    page.get_by_role("button", name="Register").click()
    strip = page.locator("#alert-strip")
    expect(strip).to_contain_text("Server down Down: connection refused.", timeout=OPENS_MS)

    page.keyboard.press("g")
    page.keyboard.press("l")
    row = page.get_by_role("row", name="Server down")
    expect(row).to_contain_text("ghost")
    expect(page.locator(".rail .alert-n")).to_contain_text("1")
    row.get_by_role("button", name="Acknowledge").click()
    expect(row).to_contain_text("admin")

    row.get_by_role("link", name="Server down").click()
    page.get_by_label("Reason").fill("it is only for a test")
    page.get_by_role("button", name="Silence").click()
    expect(page.get_by_text("Silenced until")).to_be_visible()
    expect(page.locator(".rail .alert-n")).not_to_contain_text("1", timeout=10_000)

    page.goto("/alerts/")
    with running(FakeEngine(), port):
        expect(page.get_by_text("Nothing is wrong that a rule names.")).to_be_visible(timeout=OPENS_MS)
    page.get_by_role("link", name="Closed", exact=True).click()
    expect(page.get_by_role("row", name="Server down")).to_contain_text("ghost")


def test_a_rule_is_tested_against_the_past(page: Page) -> None:
    page.goto("/alerts/rules/")
    page.get_by_role("link", name="Starving client").click()
    page.get_by_role("button", name="Test it").click()
    expect(page.locator("#test")).to_contain_text("local")
    expect(page.locator("#test")).to_contain_text("They do not tell whether others were served meanwhile")
