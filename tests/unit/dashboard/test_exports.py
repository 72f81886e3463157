"""A run as a file from its page: what is downloaded, and a report that stands alone."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_api.models import Server
from tests.support import sample_loads, sample_rows
from workers import selectors
from workers.exporting.document import as_json
from workers.exporting.importing import import_run
from workers.models import Run, RunState


@pytest.fixture
def server(db: None) -> Server:
    return sample_rows.make_server()


class Seen(HTMLParser):
    """What a browser would meet: elements, and attributes that could load or run something."""

    VOID = frozenset({"meta", "br", "hr", "line", "rect", "circle", "path", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.loads: list[tuple[str, str, str | None]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [
            (tag, name, value) for name, value in attrs if name in ("src", "href", "style", "action") or name[:2] == "on"
        ]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def report(client: Client, run: Run) -> Seen:
    response = client.get(reverse("run-export-html", args=[run.pk]))
    assert response.status_code == 200
    assert response.headers["Content-Disposition"] == f'attachment; filename="slotboard-run-{run.pk}.html"'
    seen = Seen(response.content.decode())
    assert seen.open == []
    return seen


@pytest.mark.parametrize("load", [True, False])
def test_the_report_needs_no_script_no_style_of_others_and_no_network(viewer_client: Client, server: Server, load: bool) -> None:
    run = sample_loads.make_load_run(server, pairs=6) if load else sample_rows.make_run(server, pairs=6)
    seen = report(viewer_client, run)
    assert seen.loads == []
    assert not seen.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert selectors.results(run)["verdict"] in seen.words
    for told in ("Rotating against physical", server.name, "median (range)", "Jain's index", "BCa bootstrap", "Noise floor"):
        assert told in seen.words
    assert ("Stream victim" in seen.words) is load
    assert ("max service gap" in seen.words.lower()) is True


def test_what_an_operator_wrote_is_text_in_the_report(viewer_client: Client, server: Server) -> None:
    text = sample_loads.text_of("victim-and-attacker").replace("client: victim", "client: <script>alert(1)</script>")
    run = sample_loads.make_load_run(server, pairs=1, text=text, warnings=["<img src=x>"])
    Server.objects.filter(pk=server.pk).update(name="<b>bold</b>")
    seen = report(viewer_client, run)
    assert not seen.tags & {"script", "img", "b"}
    assert "<img src=x>" in seen.words
    assert "<b>bold</b>" in seen.words


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.STOPPED])
def test_a_run_without_a_pair_has_a_report_too(viewer_client: Client, server: Server, state: RunState) -> None:
    run = sample_loads.make_load_run(server, pairs=0, planned=4, state=state, error="The server is gone.")
    seen = report(viewer_client, run)
    assert "there is nothing to compare" in seen.words
    assert "The server is gone." in seen.words


def test_json_and_csv_are_downloads_and_the_json_comes_back(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=1)
    told = viewer_client.get(reverse("run-export-json", args=[run.pk]))
    assert told.headers["Content-Type"] == "application/json"
    assert told.headers["X-Content-Type-Options"] == "nosniff"
    assert told.content == as_json(run)
    back = import_run(told.content, None)
    table = viewer_client.get(reverse("run-export-csv", args=[run.pk]))
    assert len(table.content.decode().strip().splitlines()) == 1 + run.samples.count()
    again: dict[str, Any] = json.loads(as_json(back))
    assert again["run"]["number"] == run.pk


def test_a_run_under_way_is_not_exported(viewer_client: Client, server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=1, planned=4, state=RunState.RUNNING)
    answer = viewer_client.get(reverse("run-export-json", args=[run.pk]))
    assert answer.status_code == 409
    assert b"still under way" in answer.content
    assert viewer_client.get(reverse("run-export-json", args=[run.pk + 1])).status_code == 404
