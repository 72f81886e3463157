"""A wait that really happened, on the real product: seen in the lanes, opened, and told with who was in the way."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_operator import open_server, tokens
from tests.support.requests import Background
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
WAITED = re.compile(r"^Slot 1 (waiting|queued) ")


def test_case_31_who_was_in_the_way_is_told_from_the_lanes_also_after_a_reload(page: Page, stack: Stack) -> None:
    open_server(page)
    cold = Background(stack.engine, {"prompt": tokens(14000), "n_predict": 1, "id_slot": 0}, "long-doc")
    expect(page.locator("tr[data-slot='0']")).to_contain_text("prompt")
    short = Background(stack.engine, {"prompt": tokens(300), "n_predict": 4, "id_slot": 1}, "chat-warm")
    cold.answer()
    short.answer()
    page.locator("[data-pause]").click()
    expect(page.locator("[data-live]")).to_contain_text("Paused")
    expect(page).to_have_url(re.compile(r"from=[\d.]+&to=[\d.]+"))
    lanes, says = page.locator("[data-l-plot]"), page.locator("[data-l-says]")
    lanes.focus()
    lanes.press("ArrowDown")  # the first slot, then the second
    lanes.press("ArrowDown")
    for _ in range(6):
        lanes.press("ArrowLeft")
        if WAITED.match(says.inner_text()):
            break
    expect(says).to_have_text(WAITED)
    expect(says).to_contain_text("chat-warm")
    lanes.press("Enter")
    panel = page.locator("[data-stall]")
    expect(panel).to_contain_text(re.compile(r"Slot 0 \(long-doc\) had \d+ % of the time, in \d+ iteration"))
    expect(panel).to_contain_text("prefill physical")
    expect(panel).to_contain_text(re.compile(r"Under rotating .*slot 1 would have waited"))
    page.reload()  # the address holds the range and the wait
    expect(page.locator("[data-stall]")).to_contain_text("Slot 0 (long-doc)")
    expect(page.locator("[data-past-range]")).to_contain_text("60 s")
    page.keyboard.press("l")
    expect(page.locator("[data-live]")).to_contain_text("Live")
    expect(page).to_have_url(re.compile(r"live=60"))
