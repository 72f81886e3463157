"""Signing in, settings, people and their rights, the audit trail, definitions, and pages of refusals."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, StorageState

from tests.gallery import people_rows
from tests.gallery.looks import Shot
from tests.support.nginx import nginx
from tests.support.stub_servers import unused_port

NOBODY = ""
NONE, LITTLE, MUCH = ("none",), ("little",), ("much",)
SOME = ("little", "much")
STATES: dict[str, StorageState] = {}
_made: dict[str, str] = {}  # addresses of what is started and made beside the console


def environment(folder: Path, amount: str) -> dict[str, str]:
    """The login offers a provider where there is one."""
    provider = {"SLOTBOARD_OIDC_ISSUER": "http://127.0.0.1:9/", "SLOTBOARD_OIDC_NAME": "the company's login"}
    return provider if amount == "little" else {}


def _fill_in(button: str, **fields: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        for label, value in fields.items():
            page.get_by_label(label.replace("_", " "), exact=True).first.fill(value)
        page.get_by_role("button", name=button, exact=True).click()

    return then


def _press(button: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=button, exact=True).first.click()


def _went(name: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        page.goto(_made[name])

    return then


def _with_a_code(*codes: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        _fill_in("Log in", Name="tess", Password=people_rows.PASSWORD)(page)
        for code in codes:
            _fill_in("Log in", Code=code)(page)

    return then


def _without_a_token(page: Page) -> None:
    page.locator("input[name=csrfmiddlewaretoken]").first.evaluate("(e) => e.value = 'x'")
    _fill_in("Log in", Name="otto", Password="x")(page)


@contextmanager
def _no_database() -> Iterator[None]:
    """Where the file was is a folder, so opening it fails as it does on a broken disk."""
    from django.conf import settings

    file = Path(settings.DATABASES["default"]["NAME"])
    aside = file.with_name("aside")
    file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        aside.rename(file)


def _failed(page: Page) -> None:
    with _no_database():
        page.goto("/settings/")


def _opened(page: Page) -> None:
    page.locator("details.was").evaluate_all("(all) => all.slice(0, 4).forEach((e) => { e.open = true; })")


PAGES: Sequence[Shot] = [
    Shot("login", "/login/", who=NOBODY),
    Shot("login-asked", "/audit/?what=login", who=NOBODY, amounts=LITTLE),
    Shot("login-wrong", "/login/", _fill_in("Log in", Name="otto", Password="not this"), who=NOBODY, amounts=LITTLE),
    Shot(
        "login-locked", "/login/", _fill_in("Log in", Name="locked-out", Password="x"), who=NOBODY, amounts=LITTLE, refused=True
    ),
    Shot("login-code", "/login/", _with_a_code(), who=NOBODY, amounts=LITTLE),
    Shot("login-code-wrong", "/login/", _with_a_code("123456"), who=NOBODY, amounts=LITTLE),
    Shot("login-cancelled", "/login/cancelled/", who=NOBODY, amounts=LITTLE),
    Shot("not-sent", "/login/", _without_a_token, who=NOBODY, amounts=LITTLE, refused=True),
    Shot("welcome", "/login/", _went("welcome"), who=NOBODY, amounts=LITTLE),
    Shot(
        "welcome-wrong",
        "/login/",
        lambda page: (_went("welcome")(page), _fill_in("Set it", Password="short", Again="shorter")(page)),
        who=NOBODY,
        amounts=LITTLE,
    ),
    Shot("welcome-used", "/welcome/MQ/abc-def/", who=NOBODY, amounts=LITTLE),
    Shot("settings", "/settings/"),
    Shot("settings-viewer", "/settings/", who="vera", amounts=LITTLE),
    Shot("settings-no-role", "/settings/", who="newt", amounts=LITTLE),
    Shot("settings-factor", "/settings/", who="tess", amounts=LITTLE),
    Shot("confirm", "/settings/confirm/", who="vera", amounts=LITTLE),
    Shot("confirm-wrong", "/settings/confirm/", _fill_in("Confirm", Password="not this"), who="vera", amounts=LITTLE),
    Shot("password", "/settings/password/", amounts=LITTLE),
    Shot(
        "password-wrong",
        "/settings/password/",
        _fill_in("Change", Present_password="not this", New_password="short", Again="shorter"),
        who="vera",
        amounts=LITTLE,
    ),
    Shot("factor-on", "/settings/second-factor/", who="vera", amounts=LITTLE),
    Shot(
        "factor-on-wrong",
        "/settings/second-factor/",
        _fill_in("Turn on", Authenticator_code="123456"),
        who="vera",
        amounts=LITTLE,
    ),
    Shot("factor-off", "/settings/second-factor/off/", who="tess", amounts=LITTLE),
    Shot("codes", "/settings/recovery-codes/", who="tess", amounts=LITTLE),
    Shot("codes-new", "/settings/recovery-codes/new/", who="tess", amounts=LITTLE),
    Shot("sessions", "/settings/sessions/"),
    Shot("tokens", "/settings/tokens/"),
    Shot("tokens-made", "/settings/tokens/", _fill_in("Make it", Name="nightly report"), amounts=NONE),
    Shot("tokens-wrong", "/settings/tokens/", _fill_in("Make it", Name=" "), amounts=NONE, refused=True),
    Shot("tokens-no-role", "/settings/tokens/", who="newt", amounts=LITTLE),
    Shot("tokens-viewer", "/settings/tokens/", who="vera", amounts=LITTLE),
    Shot("shares", "/settings/shares/"),
    Shot("people", "/settings/people/"),
    Shot("person-add", "/settings/people/add/"),
    Shot("person-add-wrong", "/settings/people/add/", _fill_in("Add", Name="otto"), amounts=MUCH, refused=True),
    Shot("person", "/settings/people/2/", amounts=SOME),
    Shot("person-factor", "/settings/people/5/", amounts=LITTLE),
    Shot("person-long", "/settings/people/15/", amounts=MUCH),
    Shot("person-self", "/settings/people/1/", amounts=LITTLE),
    Shot("person-last", "/settings/people/1/", _press("Deactivate"), amounts=LITTLE),
    Shot("person-link", "/settings/people/2/", _press("Link to set a password"), amounts=LITTLE),
    Shot("group-add", "/settings/groups/add/"),
    Shot("group-add-wrong", "/settings/groups/add/", _fill_in("Keep", Name="Lab"), amounts=MUCH, refused=True),
    Shot("group", "/settings/groups/2/", amounts=MUCH),
    Shot("audit", "/audit/"),
    Shot("audit-opened", "/audit/", _opened, amounts=LITTLE),
    Shot("audit-viewer", "/audit/", who="vera", amounts=SOME),
    Shot("audit-found", "/audit/?what=policy&q=evening", amounts=MUCH),
    Shot("audit-not-found", "/audit/?who=nobody-at-all", amounts=LITTLE),
    Shot("audit-wrong", "/audit/?from=tomorrow", amounts=LITTLE, status=422),
    Shot("audit-last", "/audit/?page=100", amounts=MUCH),
    Shot("definitions", "/definitions/", amounts=LITTLE),
    Shot("not-allowed", "/settings/people/", who="vera", amounts=LITTLE, status=403),
    Shot("not-found", "/nothing-here/", amounts=LITTLE, status=404),
    Shot("failed", "/definitions/", _failed, amounts=LITTLE, refused=True),
    Shot("away", "/definitions/", _went("away"), amounts=LITTLE, refused=True),
    # What somebody without the rights sees of pages that belong to others.
    Shot("overview-viewer", "/", who="vera", amounts=SOME),
    Shot("overview-no-role", "/", who="newt", amounts=LITTLE),
    Shot("server-viewer", "/servers/1/", who="vera", amounts=LITTLE),
    Shot("policies-viewer", "/servers/1/policies/", who="vera", amounts=LITTLE),
    Shot("rules-viewer", "/alerts/rules/", who="vera", amounts=LITTLE),
    Shot("rules-no-role", "/alerts/rules/", who="newt", amounts=LITTLE),
    Shot("scenarios-viewer", "/scenarios/", who="vera", amounts=LITTLE),
    Shot("scenario-viewer", "/scenarios/victim-and-attacker/", who="vera", amounts=LITTLE),
    Shot("experiments-viewer", "/experiments/", who="vera", amounts=LITTLE),
    Shot("experiment-new-viewer", "/experiments/new/", who="vera", amounts=LITTLE, status=403),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    STATES.update(people_rows.fill(amount))
    if amount == "little":
        _beside()
    return []


def _beside() -> None:
    """An nginx whose console is away, and an invitation."""
    from django.contrib.auth.models import User

    from dashboard.people import services

    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slotboard-gallery-nginx-"))
    _made["away"] = stack.enter_context(nginx(Path(folder), unused_port())) + "/"
    _made["welcome"] = services.password_link(User.objects.get(username="invited"))
