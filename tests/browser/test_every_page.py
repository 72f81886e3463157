"""What holds on every page: controls have names, nothing runs off a phone's side, and the list of keys has every key."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.stack import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
SERVER = "", "?kiosk", "history/", "policies/", "drafts/", "share/"
OTHERS = """/ /servers/add/ /alerts/ /alerts/rules/ /alerts/rules/1/ /alerts/recipients/add/ /audit/ /definitions/ /scenarios/
/scenarios/victim-and-attacker/ /scenarios/add/ /experiments/ /experiments/new/ /experiments/import/ /settings/
/settings/sessions/ /settings/tokens/ /settings/shares/ /settings/people/ /settings/people/add/ /settings/groups/add/"""
PAGES = [*(f"/servers/1/{part}" for part in SERVER), *OTHERS.split()]
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary"
# Also within what is folded: a name is a label, a text (of an element for screen readers too), or a title.
NAMELESS = """(controls) => [...document.querySelectorAll(controls)].filter((e) => {
  const text = (id) => document.getElementById(id)?.textContent ?? "";
  const labels = [...(e.labels ?? [])].map((label) => label.textContent).join("");
  const by = (e.getAttribute("aria-labelledby") ?? "").split(" ").map(text).join("");
  const said = e.type === "submit" ? e.value : "";
  return ![e.textContent, e.getAttribute("aria-label"), labels, by, e.title, said].join("").trim();
}).map((e) => e.outerHTML.slice(0, 200))"""
BEYOND = """() => {
  const width = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth <= width ? [] : [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1).slice(0, 5).map((e) => e.outerHTML.slice(0, 120));
}"""

# A field for words has its outline around what stands beside it too.
OUTLINED = (
    "[document.activeElement, document.activeElement.parentElement].some((e) => getComputedStyle(e).outlineStyle !== 'none')"
)


def test_controls_have_names_and_nothing_runs_off_a_phones_side(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    wrong = {}
    for path in PAGES:
        answer = page.goto(path)
        assert answer is not None
        assert answer.ok, path
        if found := [*page.evaluate(NAMELESS, CONTROLS), *page.evaluate(BEYOND)]:
            wrong[path] = found
    assert wrong == {}


def test_the_list_of_keys_has_every_key_and_focus_is_seen(page: Page) -> None:
    page.goto("/servers/1/")
    page.keyboard.press("?")
    listed = page.locator("dialog#keys kbd").all_inner_texts()
    scripts = ROOT / "dashboard" / "static" / "dashboard" / "js"
    go = re.search(r"const GO = \{(.*?)\}", (scripts / "frame" / "keys.js").read_text())
    live = re.search(r"const KEYS = \{(.*?)\n\};", (scripts / "live.js").read_text(), re.S)
    assert go
    assert live
    keys = {*re.findall(r"(\w): \"", go[1]), *re.findall(r"^  \"?(.)\"?: \(", live[1], re.M)}
    assert len(keys) >= 11
    assert keys - set(listed) == set()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#keys")).to_be_hidden()
    page.locator("[data-pause]").focus()
    for _ in range(6):
        page.keyboard.press("Tab")
        assert page.evaluate(OUTLINED), page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def test_escape_closes_the_account_menu_and_gives_the_focus_back(page: Page) -> None:
    menu, opener = page.locator("details.who"), page.locator("details.who > summary")
    opener.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(opener).to_be_focused()
