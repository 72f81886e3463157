"""The console under a path behind nginx, which buffers: pages, forms and the live feed stay under the path and work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import sign_in
from tests.support.nginx import PREFIX, nginx
from tests.support.stack import free_port, start_stack
from tests.support.stub_servers import unused_port

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    var: Path = tmp_path_factory.mktemp("behind")
    port = free_port()
    extra = {"SLOTBOARD_URL_PREFIX": PREFIX, "SLOTBOARD_BEHIND_PROXY": "1", "BACKEND": "simulated"}
    extra["SLOTBOARD_TRUSTED_ORIGINS"] = f"http://127.0.0.1:{port}"
    stack = start_stack(var, 200.0, **extra)
    try:
        with nginx(tmp_path_factory.mktemp("nginx"), urlsplit(stack.web).port or 0, port) as address:
            yield address
    finally:
        stack.stop()


def test_a_console_that_is_away_is_said_in_words_and_the_page_comes_back_by_itself(tmp_path: Path, chromium: Browser) -> None:
    with nginx(tmp_path, unused_port()) as address:
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        answer = page.goto(f"{address}/servers/1/")
        assert answer is not None
        assert (answer.status, answer.headers["retry-after"]) == (502, "5")
        expect(page.get_by_role("heading")).to_have_text("The console does not answer")
        expect(page.get_by_text("Inference servers are not affected")).to_be_visible()
        assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "5"
        page.close()


def test_case_32_pages_forms_and_the_feed_work_under_a_path(address: str, chromium: Browser) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(15_000)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    frames: list[str | bytes] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda response: failed.append(f"{response.status} {response.url}") if response.status >= 400 else None)
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(frame)))

    sign_in(page, address=address)
    page.goto(f"{address}/servers/1/")
    expect(page.locator("[data-live]")).to_contain_text(re.compile("live", re.I))
    page.wait_for_timeout(1500)
    assert frames, "the feed came through nginx"

    page.goto(f"{address}/experiments/new/")
    page.goto(f"{address}/servers/1/policies/")
    links = page.eval_on_selector_all("a[href]", "all => all.map((a) => a.getAttribute('href'))")
    inside = [link for link in links if link.startswith("/")]
    assert inside
    assert [link for link in inside if not link.startswith(f"{PREFIX}/")] == []
    page.locator(".who summary").click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"**{PREFIX}/login/**")
    ours = [url for url in asked if urlsplit(url).netloc == urlsplit(address).netloc]
    assert [url for url in ours if not urlsplit(url).path.startswith(f"{PREFIX}/")] == []
    assert failed == []
    context.close()
