"""Somebody new, from the admin's link to a second factor's code; a share link without an account, revoked while open."""

from __future__ import annotations

import base64
import hmac
import struct
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import sign_in
from tests.support.stack import Stack

NEW = "violet onions grow"


@pytest.fixture
def stranger(stack: Stack, chromium: Browser, console: list[str]) -> Iterator[Page]:
    """A browser that nobody is logged in with."""
    context = chromium.new_context(base_url=stack.web, viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
    yield page
    context.close()


def code_now(secret: str, ahead: int) -> str:
    """RFC 6238, as an authenticator app computes it. A code works once, so the second login takes the next one."""
    counter = struct.pack(">Q", int(time.time()) // 30 + ahead)
    digest = hmac.digest(base64.b32decode(secret), counter, "sha1")
    start = digest[-1] & 15
    number = int.from_bytes(digest[start : start + 4]) & 0x7FFFFFFF
    return f"{number % 1_000_000:06d}"


def test_somebody_new_sets_a_password_and_a_second_factor(page: Page, stranger: Page) -> None:
    page.goto("/settings/people/add/")
    page.get_by_label("Name").fill("nora")
    page.get_by_label("All servers").select_option("operator")
    page.get_by_role("button", name="Add").click()
    stranger.goto(page.locator(".once code").inner_text())
    stranger.get_by_label("Password").fill(NEW)
    stranger.get_by_label("Again").fill(NEW)
    stranger.get_by_role("button", name="Set it").click()
    sign_in(stranger, "nora", NEW)
    stranger.goto("/settings/second-factor/")
    stranger.get_by_label("Password").fill(NEW)
    stranger.get_by_role("button", name="Confirm").click()
    secret = stranger.locator("ol code").inner_text()
    stranger.get_by_label("Authenticator code").fill(code_now(secret, 0))
    stranger.get_by_role("button", name="Turn on").click()
    expect(stranger.locator(".codes code")).to_have_count(10)
    stranger.goto("/settings/")
    stranger.locator("details.who summary").click()
    stranger.get_by_role("button", name="Log out").click()
    stranger.get_by_label("Name").fill("nora")
    stranger.get_by_label("Password").fill(NEW)
    stranger.get_by_role("button", name="Log in").click()
    stranger.get_by_label("Code").fill(code_now(secret, 1))
    stranger.get_by_role("button", name="Log in").click()
    stranger.wait_for_url("**/")
    expect(stranger.locator("details.who summary")).to_contain_text("nora operator")


def test_a_share_link_shows_the_live_page_until_it_is_revoked(page: Page, stranger: Page, console: list[str]) -> None:
    page.goto("/")
    page.locator("#rail-servers a").first.click()
    page.get_by_role("link", name="Share", exact=True).click()
    page.get_by_role("button", name="Make the link").click()
    stranger.goto(page.locator(".once code").inner_text())
    expect(stranger.locator("[data-live]")).to_contain_text("Live", timeout=20_000)
    assert "#" not in stranger.url
    assert stranger.locator("a[href]:not([href^='#'])").count() == 0
    page.goto("/settings/shares/")
    page.get_by_role("button", name="Revoke").click()
    expect(stranger.locator("[data-live]")).to_contain_text("This link has ended", timeout=20_000)
    stranger.reload()
    expect(stranger.get_by_role("heading")).to_have_text("This link has ended")
    # What the page had asked for between the revocation and the end of its feed was refused, and Chromium logs that.
    console[:] = [text for text in console if "410 (Gone)" not in text]
