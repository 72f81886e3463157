"""What is taken of a page, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, StorageState
from playwright.sync_api import Error as PlaywrightError

AREAS = ("board", "control", "experiments", "people")
AMOUNTS = ("none", "little", "much")
LOOKS: Sequence[tuple[Literal["light", "dark"], int]] = (("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390))
HEIGHT = {1440: 1000, 390: 844}
TALLEST = 3000  # px of a page that a picture shows
SETTLE_MS = 900  # a first frame and the charts


@dataclass(frozen=True)
class Shot:
    """A page: `path` below the console's address, and what is done on it before the picture. `who`: "" for nobody.

    `refused`: what is done ends in a status that browsers log as an error.
    """

    name: str
    path: str
    then: Callable[[Page], object] | None = None
    who: str = "admin"
    amounts: Sequence[str] = AMOUNTS
    status: int = 200
    refused: bool = False


def take(browser: Browser, web: str, states: Mapping[str, StorageState], shots: Sequence[Shot], out: Path) -> list[str]:
    """Writes `out`/<name>-<theme>-<width>.png for each; what the pages' consoles said that they should not."""
    out.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    for theme, width in LOOKS:
        for who in dict.fromkeys(shot.who for shot in shots):
            viewport = {"width": width, "height": HEIGHT[width]}
            context = browser.new_context(
                base_url=web,
                viewport=viewport,  # type: ignore[arg-type]  # a literal of the shape that is asked for
                color_scheme=theme,
                storage_state=states[who] if who else None,
                has_touch=width < 500,
            )
            context.set_default_timeout(6_000)
            context.set_default_navigation_timeout(60_000)  # a page whose figures are worked out for the first time
            for shot in shots:
                if shot.who == who:
                    found = _one(context.new_page(), shot, out, f"{theme}-{width}")
                    said += [f"{shot.name} {theme} {width}: {words}" for words in found]
            context.close()
    return said


def _one(page: Page, shot: Shot, out: Path, look: str) -> list[str]:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        answer = page.goto(shot.path)
    except PlaywrightError as error:  # the others are still wanted
        page.close()
        return [*said, str(error).splitlines()[0]]
    if answer is None or answer.status != shot.status:
        said.append(f"answered {answer.status if answer else 'nothing'}, not {shot.status}")
    page.wait_for_timeout(SETTLE_MS)
    if shot.then:
        try:
            shot.then(page)
        except PlaywrightError as error:  # the picture shows why
            said.append(str(error).splitlines()[0])
        page.wait_for_timeout(SETTLE_MS // 2)
    tall = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    size = page.viewport_size
    assert size is not None
    clip = {"x": 0, "y": 0, "width": size["width"], "height": max(size["height"], tall)}
    page.screenshot(path=out / f"{shot.name}-{look}.png", full_page=True, clip=clip, animations="disabled", timeout=60_000)  # type: ignore[arg-type]
    page.close()
    # The status of a page that is meant to fail is no fault of it.
    return [words for words in said if not (shot.refused or shot.status >= 400) or "Failed to load resource" not in words]
