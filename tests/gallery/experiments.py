"""Experiments and scenarios: the lists, the form, a run from its start to its result, comparing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import Page

from tests.gallery.looks import Shot

MUCH = ("much",)
SOME = ("little", "much")
OWN = 200  # scenarios
FIRST = 1  # number of the run that is there with little data too
PAGES: list[Shot] = []  # filled with the rows: runs are models, which want the settings of the trial
SCENARIO = """name: own-{number:03}
version: 1
title: A morning of support chats, number {number}
summary: Short questions on long histories, and a document now and then.
written_for: 4000
streams:
  - {{name: chat, arrivals: {{kind: poisson, rate: 2, for_s: 20}}, prompt: {{tokens: 400}}, output: 40, slo: {{ttft_s: 2}}}}
"""


def _typed(page: Page) -> None:
    """A text with a fault in it."""
    page.fill("textarea", "name: x\nversion: one\nstreams:\n  - {name: a, arrivals: {kind: sometimes}}\n")
    page.wait_for_timeout(1500)


def _not_a_run(page: Page) -> None:
    page.set_input_files("input[type=file]", {"name": "run.json", "mimeType": "application/json", "buffer": b"{}"})
    page.click("main button[type=submit]")


def _to_samples(page: Page) -> None:
    """The table alone: it stands below what a picture shows of a page."""
    page.evaluate("for (const part of document.querySelectorAll('.result > .sec:not(:has(.samples))')) part.remove()")


def _report(page: Page) -> None:
    """The exported file, opened as one: within the console its rules for styles would hold."""
    with tempfile.TemporaryDirectory(prefix="slotboard-gallery-") as folder:
        file = Path(folder) / "report.html"
        file.write_bytes(page.request.get(f"/experiments/{FIRST}/export.html").body())
        page.goto(file.as_uri())


def _badge(page: Page) -> None:
    """As a page shows it: a picture is not taken of a drawing alone."""
    drawn = f'<img alt="" src="/experiments/{FIRST}/badge.svg">'
    page.evaluate("drawn => { document.querySelector('main').innerHTML = drawn }", drawn)


def _run(name: str, number: int) -> Shot:
    return Shot(name, f"/experiments/{number}/", amounts=SOME if number == FIRST else MUCH)


def _pages(numbers: Mapping[str, int]) -> list[Shot]:
    """`numbers`: of the runs, by name."""
    return [
        Shot("list", "/experiments/"),
        Shot("list-last", "/experiments/?page=99", amounts=MUCH),
        Shot("list-filtered", "/experiments/?state=active", amounts=MUCH),
        Shot("list-none-like-it", "/experiments/?scenario=x", amounts=MUCH),
        Shot("new", "/experiments/new/"),
        Shot("new-load", "/experiments/new/?scenario=victim-and-attacker", amounts=MUCH),
        Shot("new-auto", "/experiments/new/?scenario=mixed-chat&repetitions=8&scale=auto&shards=2&wait=yes", amounts=MUCH),
        Shot("new-wrong", "/experiments/new/?scenario=mixed-chat&repetitions=900&scale=x&not_before=soon", amounts=MUCH),
        Shot("new-stock", "/experiments/new/?server=6", amounts=MUCH),
        Shot("new-again", f"/experiments/new/?from={numbers['load-victim']}", amounts=MUCH),
        *(_run(name, numbers[name]) for name in numbers),
        Shot("samples", f"/experiments/{numbers['load-victim']}/?page=2", _to_samples, amounts=MUCH),
        Shot("compare", f"/experiments/{numbers['run-pairs']}/compare/?with={numbers['run-forty-pairs']}", amounts=MUCH),
        Shot("compare-load", f"/experiments/{numbers['load-victim']}/compare/?with={numbers['load-behind']}", amounts=MUCH),
        Shot("compare-not", f"/experiments/{numbers['run-pairs']}/compare/?with={numbers['load-victim']}", amounts=MUCH),
        Shot("compare-choose", f"/experiments/{numbers['run-pairs']}/compare/", amounts=SOME),
        Shot("trend", f"/experiments/{numbers['run-pairs']}/trend/", amounts=SOME),
        Shot("trend-load", f"/experiments/{numbers['load-victim']}/trend/", amounts=MUCH),
        Shot("badge", "/", _badge, amounts=MUCH),
        Shot("report", "/", _report, amounts=MUCH),
        Shot("share", f"/experiments/{numbers['run-pairs']}/share/", amounts=MUCH),
        Shot("import", "/experiments/import/"),
        Shot("import-wrong", "/experiments/import/", then=_not_a_run, amounts=MUCH),
        Shot("scenarios", "/scenarios/"),
        Shot("scenario", "/scenarios/victim-and-attacker/"),
        Shot("scenario-pair", "/scenarios/warm-behind-cold/", amounts=MUCH),
        Shot("scenario-own", "/scenarios/own-001/", amounts=MUCH),
        Shot("scenario-add", "/scenarios/add/"),
        Shot("scenario-wrong", "/scenarios/add/", then=_typed, amounts=MUCH),
    ]


def fill(amount: str) -> Sequence[str]:
    """Rows for `amount`; the names of the made-up servers that are at work meanwhile."""
    from tests.gallery.runs import NUMBERS, fill_runs

    PAGES.extend(_pages(NUMBERS))
    if amount == "none":
        return []
    fill_runs(amount)
    if amount == "much":
        _own_scenarios()
    return ["busy"] if amount == "little" else ["busy", "barrier", "stock", "vllm"]


def _own_scenarios() -> None:
    from workers.models import StoredScenario

    for number in range(1, OWN + 1):
        title = f"A morning of support chats, number {number}"
        StoredScenario.objects.create(name=f"own-{number:03}", title=title, text=SCENARIO.format(number=number))
