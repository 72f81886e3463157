"""From the library to a result: a copy is edited, its load is looked at, started from the form and followed to its end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_a_copied_scenario_is_edited_started_and_followed_to_its_result(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.get_by_role("link", name="Two long prompts and a short one").click()
    expect(page.locator(".plane")).to_have_count(4)  # three streams, and the work that they make
    page.get_by_role("button", name="Edit a copy").click()

    page.get_by_role("button", name="Go on in YAML").click()
    text = page.get_by_label("The scenario")
    text.fill(text.input_value().replace("tokens: 500", "tokens: some"))
    expect(page.locator(".faults")).to_contain_text(re.compile(r"line 24 streams\[2\]\.prompt\.tokens *must be a whole number"))
    page.locator(".faults a").click()
    assert text.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == "    prompt: {tokens: some}"
    text.fill(text.input_value().replace("tokens: some", "tokens: 600"))
    expect(page.locator("#checked .plane")).to_have_count(4)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#yaml")).to_contain_text("tokens: 600")

    page.get_by_role("link", name="Run it").click()
    expect(page.get_by_label("Scenario")).to_have_value("two-long-one-short-2")
    expect(page.locator("#check")).to_contain_text("local can do all of this")
    page.get_by_label("Pairs", exact=True).fill("1")
    page.get_by_label("Scale").fill("0.02")
    expect(page.locator("#command")).to_contain_text("--pairs 1 --scale 0.02")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(r"/experiments/\d+/"))

    expect(page.locator("#run-state")).to_contain_text("Finished", timeout=120_000)
    expect(page.locator("main")).to_contain_text("Measures")
    expect(page.locator("main")).to_contain_text("short")
    page.get_by_text("Run again").click()
    page.get_by_role("link", name="Edit, then run").click()
    expect(page.get_by_label("Scenario")).to_have_value("two-long-one-short-2")
    expect(page.get_by_label("Scale")).to_have_value("0.02")
