"""What an operator sets: policies of a server, its draft check, its registration, share links."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Sequence
from datetime import time
from pathlib import Path

from playwright.sync_api import Page

from tests.gallery.looks import Shot

LITTLE, SOME, MUCH = ("little",), ("little", "much"), ("much",)
SERVERS = {"none": [], "little": [], "much": ["stock", "unified"]}
#: Processes of the product that are at work too; `local` is the engine that they start and watch.
STARTS = {"little": ("engine", "observer"), "much": ("engine", "observer")}
ENGINE = 90  # its number
_models: dict[str, Path] = {}


def environment(folder: Path, amount: str) -> dict[str, str]:
    """A folder of headers of every kind, for the draft check."""
    from tests.support.tiny_drafts import write_draft, write_mrope_target

    models = folder / "models-to-check"
    models.mkdir()
    for name, keys in (("legacy", {}), ("with-sections", {"rope__dimension_sections": [32, 0, 0, 0]})):
        _models[name] = write_draft(models / f"{name}.gguf", **keys)  # type: ignore[arg-type]
    _models["odd"] = write_draft(models / "odd.gguf", rope__dimension_count=31)
    _models["target"] = write_mrope_target(models / "vision-target.gguf")
    _models["text"] = write_mrope_target(models / "text-target.gguf", "qwen3")
    _models["damaged"] = models / "damaged.gguf"
    _models["damaged"].write_bytes(b"GGUF\x03\x00\x00\x00 and nothing that follows")
    return {"ENGINE_ARGS": f"--models-dir {models}"}


def choosing(**values: str) -> Callable[[Page], None]:
    """Sets fields of the policy form, which has the change reviewed."""

    def act(page: Page) -> None:
        for name, value in values.items():
            page.locator(f"[name='set.{name}'][value={value}]").check(force=True)

    return act


def pressing(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name).first.click()


def checked(target: str, draft: str, rope: str = "auto") -> str:
    given = urllib.parse.urlencode({"target": _models[target], "draft": _models[draft], "draft_rope": rope})
    return f"/servers/{ENGINE}/drafts/?{given}"


PAGES: list[Shot] = [
    Shot("server-add", "/servers/add/", amounts=LITTLE),
    Shot("server-add-errors", "/servers/add/", pressing("Register"), amounts=LITTLE),
    Shot("policies", f"/servers/{ENGINE}/policies/", amounts=SOME),
    Shot("policies-review", f"/servers/{ENGINE}/policies/", choosing(phase="barrier"), amounts=SOME),
    Shot("policies-stock", "/servers/6/policies/", amounts=MUCH),
    Shot("policies-unified", "/servers/4/policies/", amounts=MUCH),
    Shot("windows", f"/servers/{ENGINE}/policy/windows/", amounts=SOME),
    Shot("drafts", f"/servers/{ENGINE}/drafts/", amounts=SOME),
    Shot("share", f"/servers/{ENGINE}/share/", amounts=LITTLE),
]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from scheduler_api.models import PolicyChange, PolicyOutcome, Server
    from scheduler_api.policies.models import PolicyWindow

    if amount == "none":
        Server.objects.all().delete()
        return []
    Server.objects.filter(name="local").update(id=ENGINE)
    Server.objects.exclude(pk=ENGINE).delete()
    local, admin, now = Server.objects.get(), User.objects.get(username="admin"), timezone.now()
    for outcome in ("legacy", "with-sections", "odd", "damaged"):
        PAGES.append(Shot(f"drafts-{outcome}", checked("target", outcome), amounts=LITTLE))
    PAGES.append(Shot("drafts-text", checked("text", "legacy"), amounts=LITTLE))
    PAGES.append(Shot("drafts-off", checked("target", "legacy", "off"), amounts=LITTLE))
    PAGES.append(Shot("drafts-temporal", checked("text", "with-sections", "temporal"), amounts=LITTLE))
    for number in range(1 if amount == "little" else 60):
        PolicyChange.objects.create(
            server=local, actor=admin, actor_name=("admin", "mira", "run 12")[number % 3], outcome=PolicyOutcome.APPLIED,
            reason="streams stutter while documents are read in", old={"phase": "continuous"}, changes={"phase": "barrier"},
            new={"phase": "barrier"}, version=number + 2, effective_from_iteration=4711 * number,
            ttl_s=600.0 if number % 2 else None,
        )  # fmt: skip
    if amount == "much":
        for number in range(6):
            PolicyWindow.objects.create(
                server=local, name=f"nights {number}", days=[0, 1, 2, 3, 4], begins=time(22), ends=time(6), zone="Europe/Berlin",
                inside={"phase": "barrier"}, by=admin, by_name="admin", since=now, enabled=number % 2 == 0,
            )  # fmt: skip
    return SERVERS[amount]
