"""The overview, and the page of a server in each of its states: live, rewound, its history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from playwright.sync_api import Page

from tests.gallery.looks import Shot
from tests.support.sample_states.examples import NAMES

LITTLE, SOME, MUCH = ("little",), ("little", "much"), ("much",)
SERVERS = {"none": [], "little": ["idle"], "much": [*NAMES]}
#: What stands beside the made-up ones, which no observer has been near.
UNSEEN = 40


def pressing(*keys: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        for key in keys:
            page.keyboard.press(key)

    return act


def clicking(selector: str) -> Callable[[Page], None]:
    return lambda page: page.locator(selector).first.click()


def of(name: str) -> str:
    return f"/servers/{NAMES.index(name) + 1}/"


PAGES: Sequence[Shot] = [
    Shot("overview", "/"),
    Shot("history", "/servers/1/history/", amounts=SOME),
    Shot("history-30d", "/servers/2/history/?range=30d", amounts=MUCH),
    Shot("live-idle", "/servers/1/", amounts=LITTLE),
    *(Shot(f"live-{name}", of(name), amounts=MUCH) for name in NAMES if name != "idle"),
    Shot("live-row", of("busy"), clicking("button.tw"), amounts=MUCH),
    Shot("live-keys", of("busy"), pressing("?"), amounts=MUCH),
    Shot("live-search", of("busy"), pressing("/", "b"), amounts=MUCH),
    Shot("live-paused", of("busy"), clicking("[data-pause]"), amounts=MUCH),
    Shot("live-kiosk", of("busy") + "?kiosk", amounts=MUCH),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    from scheduler_api.models import Server

    Server.objects.all().delete()
    if amount == "much":
        for number in range(UNSEEN):
            Server.objects.create(
                pk=100 + number, name=f"rack-{number:02d}-gpu", base_url=f"http://10.0.0.{number}:8080", kind="llama_server"
            )
    return SERVERS[amount]
