"""A real Chromium against the whole product, started as `make run` starts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, StorageState, sync_playwright

from tests.support.stack import PASSWORD, Stack, start_stack

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# htmx logs a poll that leaving the page cut short; the browser does that to every request under way.
ABORTED = ("htmx:afterRequest", "htmx:sendAbort")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    var: Path = tmp_path_factory.mktemp("stack")
    # Batches of 512: a prompt of a few thousand tokens then takes many, so order matters at a small scale.
    started = start_stack(var, ENGINE_ARGS="--batch-size 512 --ubatch-size 256")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or None
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def console() -> list[str]:
    """Errors of the page's console, Content-Security-Policy refusals among them."""
    return []


@pytest.fixture(scope="session")
def signed_in(stack: Stack, chromium: Browser) -> StorageState:
    """The admin's cookies, from one sign-in: hashing the password takes most of a second."""
    context = chromium.new_context(base_url=stack.web)
    sign_in(context.new_page())
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(stack: Stack, chromium: Browser, console: list[str], signed_in: StorageState) -> Iterator[Page]:
    """Signed in as the admin, on the overview; fails the test when the page logged an error."""
    context = chromium.new_context(base_url=stack.web, viewport={"width": 1440, "height": 1000}, storage_state=signed_in)
    context.set_default_timeout(15_000)
    page = context.new_page()

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(ABORTED):
            console.append(f"{message.text} {message.location.get('url', '')}".rstrip())

    page.on("console", note)
    page.on("pageerror", lambda error: console.append(str(error)))
    page.goto("/")
    yield page
    context.close()
    assert console == []


def sign_in(page: Page, name: str = "admin", password: str = PASSWORD, address: str = "") -> None:
    """`address` is the console's, without a slash at the end; the context's own when empty."""
    page.goto(f"{address}/login/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed browser test shows the end of the product's own log, and keeps a picture under test-results/."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    funcargs: dict[str, Any] = getattr(item, "funcargs", {})
    if isinstance(funcargs.get("stack"), Stack):
        report.sections.append(("slotboard", funcargs["stack"].log()))
    if isinstance(funcargs.get("page"), Page):
        folder = Path("test-results")
        folder.mkdir(exist_ok=True)
        funcargs["page"].screenshot(path=folder / f"{item.name}.png", full_page=True)
