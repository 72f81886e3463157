"""The overview, the page of a server in each of its states (live, rewound, its history), and alerts, which no observer closes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

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
    Shot("history-30d", f"/servers/2/history/?last={30 * 86_400}", amounts=MUCH),
    Shot("live-idle", "/servers/1/", amounts=LITTLE),
    *(Shot(f"live-{name}", of(name), amounts=MUCH) for name in NAMES if name != "idle"),
    Shot("live-row", of("busy"), clicking("button.tw"), amounts=MUCH),
    Shot("live-keys", of("busy"), pressing("?"), amounts=MUCH),
    Shot("live-search", of("busy"), pressing("/", "b"), amounts=MUCH),
    Shot("live-paused", of("busy"), clicking("[data-pause]"), amounts=MUCH),
    Shot("live-kiosk", of("busy") + "?kiosk", amounts=MUCH),
    Shot("alerts", "/alerts/"),
    Shot("alerts-closed", "/alerts/?state=closed", amounts=MUCH),
    Shot("alert", "/alerts/1/", amounts=SOME),
    Shot("alert-rules", "/alerts/rules/"),
    Shot("alert-rule", "/alerts/rules/1/", amounts=LITTLE),
    Shot("recipient", "/alerts/recipients/add/", amounts=LITTLE),
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
    for number, name in enumerate(NAMES, 1):  # the player gives them their kinds
        if name in SERVERS[amount]:
            Server.objects.create(pk=number, name=name, base_url="http://127.0.0.1:9", kind="engine", enabled=False)
    _alerts(amount)
    return SERVERS[amount]


def _alerts(amount: str) -> None:
    from django.contrib.auth.models import User
    from django.utils import timezone

    from scheduler_api.alerts.kinds import Kind
    from scheduler_api.alerts.models import Recipient, Silence
    from scheduler_api.models import Server
    from tests.support import alerts

    admin, servers = User.objects.get(username="admin"), list(Server.objects.order_by("pk"))
    rules = [alerts.rule(kind) for kind in (Kind.STUCK_SLOT, Kind.STARVING, Kind.QUEUE_AGE)]
    for number in range({"none": 0, "little": 3, "much": 180}[amount]):
        seen = (
            {"acknowledged_by": admin, "acknowledged_name": "admin", "acknowledged_at": timezone.now()} if number % 4 == 1 else {}
        )
        server = servers[number % min(len(servers), 8)]
        alerts.alert(
            rules[number % 3], server, ago_s=90.0 * (number + 1), closed=number % 3 == 2, key=str(number), slot=number % 4, **seen
        )
    if amount == "much":
        Recipient.objects.create(name="on call", channel="webhook", address="https://hooks.example.org/slotboard")
        Recipient.objects.create(name="the team", channel="email", address="team@example.org")
        Silence.objects.create(
            rule=rules[1],
            server=servers[0],
            until=timezone.now() + timedelta(hours=2),
            by=admin,
            by_name="admin",
            reason="a benchmark",
        )
