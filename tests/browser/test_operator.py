"""What an operator does in a first hour, in a real browser on the real product."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.requests import DIRECT, Background, post
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
POLICY = re.compile(r"/policies/")


def tokens(n: int) -> list[int]:
    """Ordinary pieces of the default model's vocabulary."""
    return [1000 + i % 9000 for i in range(n)]


def open_server(page: Page) -> None:
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="local").first.click()
    expect(page.get_by_role("heading", name="local")).to_be_visible()
    expect(page.locator("[data-live]")).to_contain_text("Live")


def slot(page: Page, number: int) -> Locator:
    return page.locator(f"tr[data-slot='{number}']")


def switch(page: Page, field: str, value: str, reason: str) -> None:
    open_server(page)
    page.get_by_role("link", name="Change policy").click()
    page.wait_for_url(POLICY)
    page.locator(f"input[name='set.{field}'][value='{value}']").check()
    page.get_by_label("Reason, for the audit").fill(reason)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(f"#{field} .pol-h")).to_contain_text(f"{value}, in force")


def start_experiment(page: Page, *, pairs: int, scale: float) -> None:
    page.goto("/experiments/")
    page.get_by_role("link", name="New").first.click()
    page.get_by_label("Pairs").fill(str(pairs))
    page.get_by_label("Scale").fill(str(scale))
    page.locator("select[name='a-prefill_order']").select_option("physical")
    page.locator("select[name='b-prefill_order']").select_option("rotating")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(r"/experiments/\d+/"))


def policy_of(stack: Stack) -> dict[str, object]:
    with DIRECT.open(f"{stack.engine}/scheduler", timeout=10) as response:
        policy: dict[str, object] = json.loads(response.read())["policy"]["effective"]
    return policy


def test_a_slot_goes_busy_and_idle_again(page: Page, stack: Stack) -> None:
    open_server(page)
    expect(slot(page, 2)).to_contain_text("idle")
    work = Background(stack.engine, {"prompt": "A slot at work", "n_predict": 400, "id_slot": 2, "ignore_eos": True}, "chat-warm")
    expect(slot(page, 2)).to_contain_text("generating")
    expect(slot(page, 2)).to_contain_text("chat-warm")
    expect(page.locator("[data-summary]").first).to_contain_text("1 generating")
    assert work.answer()["tokens_predicted"] == 400
    expect(slot(page, 2)).to_contain_text("idle")


def test_who_blocks_whom_is_said_on_the_row(page: Page, stack: Stack) -> None:
    open_server(page)
    cold = Background(stack.engine, {"prompt": tokens(16000), "n_predict": 1, "id_slot": 0})
    expect(slot(page, 0)).to_contain_text("prompt")
    short = Background(stack.engine, {"prompt": "A short one behind it", "n_predict": 1, "id_slot": 1})
    expect(slot(page, 1)).to_contain_text("batch full, slot 0 took 512 of 512")
    cold.answer()
    short.answer()


def test_a_switch_takes_effect_and_is_in_the_audit(page: Page, stack: Stack) -> None:
    switch(page, "prefill_order", "rotating", "chat waits behind long documents")
    assert policy_of(stack)["prefill_order"] == "rotating"
    page.goto("/audit/")
    row = page.get_by_role("row").filter(has_text="chat waits behind long documents").first
    for words in ("admin", "physical", "rotating"):
        expect(row).to_contain_text(words)
    open_server(page)
    expect(page.locator("main")).to_contain_text("rotating")
    switch(page, "prefill_order", "physical", "back to where it was")
    assert policy_of(stack)["prefill_order"] == "physical"


def test_a_barrier_shows_its_cohort(page: Page, stack: Stack) -> None:
    switch(page, "phase", "barrier", "phases apart, to see a cohort")
    open_server(page)
    work = [
        Background(
            stack.engine, {"prompt": [1000 + i % 9000 for i in range(n)], "n_predict": 60, "id_slot": s, "ignore_eos": True}
        )
        for s, n in ((0, 8000), (1, 400))
    ]
    expect(page.locator("main")).to_contain_text(re.compile(r"cohort \d+"))
    for request in work:
        request.answer()
    switch(page, "phase", "continuous", "seen enough")


def test_an_experiment_runs_to_its_ratio_and_gives_the_policy_back(page: Page, stack: Stack) -> None:
    before = policy_of(stack)
    start_experiment(page, pairs=2, scale=0.2)
    expect(page.locator("#progress")).to_contain_text("blocks")
    expect(page.locator("#run-state")).to_contain_text("Finished", timeout=120_000)
    measures = page.locator("table").filter(has_text="Short request, E2E").first
    expect(measures).to_be_visible(timeout=15_000)
    text = measures.get_by_role("row").filter(has_text="Short request, E2E").inner_text()
    found = re.search(r"([\d.]+) times sooner", text)
    assert found, text
    assert float(found.group(1)) > 1
    assert policy_of(stack) == before
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Samples as CSV").first.click()
    rows = download.value.path().read_text().splitlines()
    assert len(rows) > 8
    assert "wall_s" in rows[0]


def test_stop_frees_the_slots_at_once(page: Page, stack: Stack) -> None:
    before = policy_of(stack)
    start_experiment(page, pairs=8, scale=1.0)
    expect(page.locator("#progress")).to_contain_text(re.compile(r"[1-9]\d* of|cold|warm|short", re.I), timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-state")).to_contain_text("Stopped", timeout=10_000)
    open_server(page)
    expect(page.locator("[data-summary]").first).to_contain_text("all idle", timeout=10_000)
    assert policy_of(stack) == before


def test_dark_theme_stays_pinned(page: Page) -> None:
    open_server(page)
    page.get_by_role("button", name=re.compile("theme", re.I)).click()
    expect(page.locator("html")).to_have_attribute("data-theme", re.compile("dark|light"))
    pinned = page.locator("html").get_attribute("data-theme") or ""
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", pinned)


def test_a_viewer_is_refused_on_the_server(page: Page, stack: Stack) -> None:
    """The page's own token is not enough: the role is checked where the write happens."""
    page.goto("/servers/1/policies/")
    page.context.clear_cookies()
    answer = page.request.post(f"{stack.web}/servers/1/policy/", form={"set.prefill_order": "rotating"}, max_redirects=0)
    assert answer.status in (302, 403)
    assert post(f"{stack.engine}/tokenize", {"content": "still there"})["tokens"]
