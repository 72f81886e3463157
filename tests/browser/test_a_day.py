"""A day of two operators: a conflict, a guard rail, a dead console, a restarted engine, a revoked token. And its trail."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import sign_in
from tests.support.parts import CONSOLE, Parts, parts
from tests.support.requests import DIRECT, Background
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(480)]

POLICIES = "/servers/1/policies/"
NEW = "violet onions grow"
LIMIT_MS = 30_000


@pytest.fixture
def day(stack: Stack, tmp_path: Path) -> Iterator[Parts]:
    with parts(tmp_path, stack, PARALLEL="2", ENGINE_ARGS="--batch-size 512 --ubatch-size 256") as started:
        yield started


def browser_of(chromium: Browser, day: Parts, ends: ExitStack) -> Page:
    context = chromium.new_context(base_url=day.web, viewport={"width": 1440, "height": 1000})
    ends.callback(context.close)
    context.set_default_timeout(LIMIT_MS)
    return context.new_page()


def order_of(day: Parts) -> Any:
    """The prefill order in force, as the engine itself tells."""
    with DIRECT.open(f"{day.engine}/scheduler", timeout=10) as response:
        return json.loads(response.read())["policy"]["effective"]["prefill_order"]


def until(condition: Callable[[], object], what: str, limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.1)


def shows(page: Page, path: str, selector: str, words: str) -> None:
    """Loads the page until the observer has told it."""

    def there() -> bool:
        page.goto(path)
        return any(words in text for text in page.locator(selector).all_inner_texts())

    until(there, f"{words!r} in {selector} of {path}")


def prepared(page: Page, order: str, reason: str, *, stays: bool = True) -> None:
    """A change that is ready to be applied."""
    shows(page, POLICIES, "#prefill_order", "rotating")
    page.locator(f"input[name='set.prefill_order'][value='{order}']").check()
    page.get_by_label("Reason, for the audit").fill(reason)
    if stays:
        page.locator("input[name='ttl'][value='']").check(force=True)


def with_token(day: Parts, token: str, method: str = "GET", **body: Any) -> int:
    """The status of the API's answer."""
    request = urllib.request.Request(
        f"{day.web}/api/servers/1{'/policy' if body else ''}",
        json.dumps(body).encode() if body else None,
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method=method,
    )
    try:
        with DIRECT.open(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_day(day: Parts, chromium: Browser) -> None:
    with ExitStack() as ends:
        ada, mira = browser_of(chromium, day, ends), browser_of(chromium, day, ends)
        sign_in(ada)
        somebody_new(ada, mira)
        two_in_conflict(ada, mira, day)
        a_guard_rail(ada, day)
        token = a_token(mira)
        a_deadline_with_the_console_dead(mira, token, day)
        a_restart_of_the_engine(mira, day)
        a_revoked_token(ada, token, day)
        the_trail(ada, day)


def somebody_new(ada: Page, mira: Page) -> None:
    ada.goto("/settings/people/add/")
    ada.get_by_label("Name").fill("mira")
    ada.get_by_label("All servers").select_option("operator")
    ada.get_by_role("button", name="Add").click()
    mira.goto(ada.locator(".once code").inner_text())
    mira.get_by_label("Password").fill(NEW)
    mira.get_by_label("Again").fill(NEW)
    mira.get_by_role("button", name="Set it").click()
    sign_in(mira, "mira", NEW)


def two_in_conflict(ada: Page, mira: Page, day: Parts) -> None:
    prepared(mira, "fair", "everybody a share")
    prepared(ada, "rotating", "short ones first")
    ada.locator("[data-apply]").click()
    expect(ada.locator("#prefill_order .pol-h")).to_contain_text("rotating, in force")
    mira.locator("[data-apply]").click()
    expect(mira.get_by_role("heading", level=1)).to_have_text("Somebody else changed it first")
    expect(mira.get_by_role("alert").first).to_contain_text("admin")
    row = mira.locator("table.three tbody tr").filter(has_text="prefill_order")
    for side, words in (("Both began from", "physical"), ("Theirs", "rotating"), ("Mine", "fair")):
        expect(row.locator(f"td[data-l='{side}']")).to_contain_text(words)
    assert order_of(day) == "rotating", "nothing was switched over the head of the first"
    row.locator("input[value='fair']").check()
    mira.get_by_role("button", name="Apply what is chosen as mine").click()
    expect(mira.locator("#prefill_order .pol-h")).to_contain_text("fair, in force")
    assert order_of(day) == "fair"


def a_guard_rail(ada: Page, day: Parts) -> None:
    prepared(ada, "shortest_first", "watched", stays=False)
    ada.locator("details.guards summary").click()
    ada.locator("input[name='guard.oldest_wait.on']").check()
    ada.locator("input[name='guard.oldest_wait.over']").fill("0.5")
    ada.locator("input[name='guard.oldest_wait.for']").fill("1")
    ada.locator("[data-apply]").click()
    expect(ada.locator(".note.guard")).to_contain_text("A guard rail watches")
    assert order_of(day) == "shortest_first"
    for n in range(6):  # for two slots; what is left of them ends with the engine, later in the day
        Background(day.engine, {"prompt": f"Long {n}", "n_predict": 400, "ignore_eos": True})
    until(lambda: order_of(day) == "fair", "the guard rail puts it back")
    shows(ada, POLICIES, "main", "over 0.5 s for 1 s")
    shows(ada, "/alerts/", "main", "A guard rail put change")


def a_token(mira: Page) -> str:
    mira.goto("/settings/tokens/")
    mira.get_by_label("Name").fill("night script")
    mira.locator("select[name='scope']").select_option("operate")
    mira.get_by_role("button", name="Make it").click()
    return mira.locator(".once code").first.inner_text()


def a_deadline_with_the_console_dead(mira: Page, token: str, day: Parts) -> None:
    change = {"set": {"prefill_order": "physical"}, "reason": "for a moment", "ttl_s": 6}
    assert with_token(day, token, "PATCH", **change) == 200
    day.kill(*CONSOLE)
    assert order_of(day) == "physical", "the console was dead before the deadline"
    assert not day.answers(f"{day.web}/health/")
    until(lambda: order_of(day) == "fair", "the engine goes back by itself")
    day.start("observer", "web")  # the workers have no part in the rest of the day
    day.wait_for(f"{day.web}/health/")
    shows(mira, POLICIES, "section[aria-labelledby='p-hist'] tbody tr", "went back at its deadline")
    expect(mira.locator(".banner.drift")).to_have_count(0)


def a_restart_of_the_engine(mira: Page, day: Parts) -> None:
    day.kill("engine")
    day.start("engine")
    day.wait_for(f"{day.engine}/health")
    assert order_of(day) == "physical", "it begins with its flags"
    shows(mira, POLICIES, ".banner.drift", "The server was started again and has another policy than before")
    expect(mira.locator(".banner.drift")).to_contain_text("fair")
    assert order_of(day) == "physical", "nobody chose yet"
    mira.get_by_role("button", name="Apply it again").click()
    expect(mira.locator("#prefill_order .pol-h")).to_contain_text("fair, in force")
    expect(mira.locator(".banner.drift")).to_have_count(0)
    assert order_of(day) == "fair"


def a_revoked_token(ada: Page, token: str, day: Parts) -> None:
    assert with_token(day, token) == 200
    ada.goto("/settings/tokens/")
    ada.get_by_role("row").filter(has_text="night script").get_by_role("button", name="Revoke").click()
    expect(ada.get_by_role("row").filter(has_text="night script")).to_contain_text("revoked")
    assert with_token(day, token) == 401


def the_trail(ada: Page, day: Parts) -> None:
    whole = day.manage("verify_audit")
    assert whole.returncode == 0, whole.stderr
    assert "The audit trail is whole" in whole.stdout
    ada.goto("/audit/")
    rows = ada.locator(".trail > tbody > tr").all_inner_texts()
    for words in (
        ("login.succeeded", "admin"),
        ("person.added", "mira", "admin"),
        ("password.set", "mira"),
        ("login.succeeded", "mira"),
        ("policy.switched", "admin", "rotating", "short ones first"),
        ("mira", "everybody a share", "refused"),
        ("policy.switched", "mira", "fair", "everybody a share", "done"),
        ("policy.switched", "admin", "shortest first", "watched"),
        ("policy.guarded", "guard rail", "over 0.5 s for 1 s"),
        ("token.made", "night script", "mira"),
        ("policy.switched", "mira", "token night script", "for a moment"),
        ("policy.reverted", "the server", "went back at its deadline"),
        ("policy.drifted", "the server", "started again"),
        ("policy.reapplied", "mira", "fair"),
        ("token.revoked", "night script", "admin"),
    ):
        assert any(all(word in row for word in words) for row in rows), (words, rows)
