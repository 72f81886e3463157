"""The check of a draft: files as the engine lists them, each outcome in words, and who may see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
from django.test import Client
from django.urls import reverse

from dashboard import draft_page
from engine.drafts import MODES, DraftError, examine
from engine.drafts.listing import list_models
from engine.drafts.report import report, unreadable
from scheduler_api import drafts, wire
from scheduler_api.drafts import ModelFile
from scheduler_api.exceptions import ServerUnreachable
from scheduler_api.kinds.engine_state import draft_of
from scheduler_api.models import Server
from tests.support.sample_states import Json
from tests.unit.drafts import headers as raw

Show = Callable[[str], Server]


class FakeEngine:
    """Answers as an engine's two routes do, with the engine's own listing and rule on headers of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.folders = folder, [str(folder)]
        self.draft: Json | None = None
        self.status = 200
        self.complete = True

    def call(self, target: Any, method: str, path: str, **more: Any) -> wire.Answer:
        assert method == "GET"
        if self.status == 0:
            raise ServerUnreachable("http://127.0.0.1:1 cannot be used: connection refused.")
        value = self.files() if path == "/models/files" else self.check(parse_qs(urlsplit(path).query))
        return wire.Answer(self.status, orjson.dumps(value if self.status == 200 else {"error": {"message": "not so"}}))

    def files(self) -> Json:
        found = [
            {"path": str(file.path), "name": file.name, "folder": str(file.folder), "size_bytes": file.size_bytes}
            | {"n_files": file.n_files, "in_use": "model" if file.name == "target.gguf" else None}
            for file in list_models([self.folder]).files
        ]
        return {"folders": self.folders, "files": found, "complete": self.complete, "draft": self.draft}

    def check(self, query: dict[str, list[str]]) -> Json:
        mode = next(mode for mode in MODES if query["draft_rope"] == [mode])
        try:
            return report(examine(Path(query["target"][0]), Path(query["draft"][0]), mode))
        except DraftError as error:
            return unreadable(error, mode)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    raw.model(tmp_path / "target.gguf", raw.TARGET)
    raw.model(tmp_path / "text.gguf", {"general.architecture": "llama", "llama.block_count": 2})
    raw.model(tmp_path / "draft.gguf", raw.DRAFT)
    raw.model(tmp_path / "odd.gguf", {**raw.DRAFT, "dflash.rope.dimension_count": 63})
    raw.model(tmp_path / "own.gguf", {**raw.DRAFT, "dflash.rope.dimension_sections": [11, 11, 10, 0]})
    raw.model(tmp_path / "other.gguf", {**raw.DRAFT, "dflash.rope.freq_base": 1e6})
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    made = FakeEngine(tmp_path)
    monkeypatch.setattr(wire, "call", made.call)
    return made


@pytest.fixture
def server(shown: Show) -> Server:
    return shown("busy")


def get(client: Client, server: Server, engine: FakeEngine, target: str = "", draft: str = "", mode: str = "auto") -> str:
    paths = {"target": target and str(engine.folder / target), "draft": draft and str(engine.folder / draft)}
    response = client.get(reverse("server-drafts", args=[server.pk]), {**paths, "draft_rope": mode})
    assert response.status_code == 200
    return response.content.decode()


OUTCOMES = (
    ("target.gguf", "draft.gguf", "auto", ["Temporal-only sections are added", "temporal 32 of 32 pairs", "no sections"]),
    ("target.gguf", "own.gguf", "auto", ["own sections hold", "temporal 11, height 11, width 10 of 32 pairs"]),
    ("target.gguf", "own.gguf", "temporal", ["are added in memory", "they are replaced", "--draft-rope temporal"]),
    ("text.gguf", "draft.gguf", "auto", ["used as it is", "does not use M-RoPE"]),
    ("target.gguf", "draft.gguf", "off", ["used as it is", "--draft-rope is off", "the text after an image"]),
    ("target.gguf", "odd.gguf", "auto", ["is refused", "dflash.rope.dimension_count is 63", "--draft-optional"]),
    ("target.gguf", "other.gguf", "auto", ["different bases", "1e+06"]),
    ("target.gguf", "damaged.gguf", "auto", ["A file cannot be read", "it ends before the version"]),
)


def test_each_outcome_in_words(operator_client: Client, server: Server, engine: FakeEngine) -> None:
    for target, draft, mode, said in OUTCOMES:
        page = get(operator_client, server, engine, target, draft, mode)
        missing = [words for words in said if words not in page]
        assert not missing, (target, draft, mode)
        assert f"engine.drafts check {engine.folder / target} {engine.folder / draft}" in page


def test_the_model_that_is_served_is_chosen_beforehand(operator_client: Client, server: Server, engine: FakeEngine) -> None:
    page = get(operator_client, server, engine)
    assert f'<option value="{engine.folder}/target.gguf" selected>target.gguf (' in page
    assert "served now" in page
    assert "appear here" in page


def test_a_path_that_is_not_listed_is_not_asked_for(operator_client: Client, server: Server, engine: FakeEngine) -> None:
    page = get(operator_client, server, engine, "target.gguf", "none.gguf")
    assert "none.gguf is not among the files that" in page


def test_what_is_missing_is_said(operator_client: Client, server: Server, engine: FakeEngine) -> None:
    engine.folders = []
    assert "--models-dir FOLDER" in get(operator_client, server, engine)
    engine.folders, engine.complete = [str(engine.folder)], False
    assert "more files than are listed" in get(operator_client, server, engine)
    engine.draft = {"path": "/x/odd.gguf", "loaded": False, "text": "It is odd."}
    assert "serves without it" in get(operator_client, server, engine)


def test_an_engine_that_does_not_answer(operator_client: Client, server: Server, engine: FakeEngine) -> None:
    for status, said in ((404, "older than this page"), (401, "registered key"), (500, "not so"), (0, "refused")):
        engine.status = status
        response = operator_client.get(reverse("server-drafts", args=[server.pk]))
        assert response.status_code == 502
        assert said in response.content.decode()


def test_other_kinds_say_why_not(operator_client: Client, shown: Show, engine: FakeEngine) -> None:
    other = shown("stock")
    page = operator_client.get(reverse("server-drafts", args=[other.pk])).content.decode()
    assert "lists no model files" in page
    assert drafts.why_not(other) in page


def test_operators_and_admins_alone(viewer_client: Client, admin_client: Client, server: Server, engine: FakeEngine) -> None:
    address = reverse("server-drafts", args=[server.pk])
    assert viewer_client.get(address).status_code == 403
    assert admin_client.get(address).status_code == 200
    assert Client().get(address).status_code == 302
    assert admin_client.post(address).status_code == 405


def test_the_live_page_links_and_tells_of_a_draft_left_out(
    operator_client: Client, viewer_client: Client, server: Server, states: dict[int, Json]
) -> None:
    address = reverse("server", args=[server.pk])
    link = f'href="{reverse("server-drafts", args=[server.pk])}"'
    assert link in operator_client.get(address).content.decode()
    assert link not in viewer_client.get(address).content.decode()
    states[server.pk]["info"]["draft"] = {"loaded": False, "text": "Layer 0 is odd."}
    page = viewer_client.get(address).content.decode()
    assert "Serving without its draft model." in page
    assert "Layer 0 is odd." in page


def test_a_state_names_no_path() -> None:
    told = {"loaded": False, "outcome": "unreadable", "text": "The file /secret/x.gguf cannot be read.", "path": "/secret/x.gguf"}
    assert "/secret" not in str(draft_of({"draft": told}))
    assert draft_of({"draft": told | {"outcome": "invalid", "text": "odd"}}) == {"loaded": False, "text": "odd"}
    assert draft_of({}) is None


def test_labels_tell_size_parts_and_use() -> None:
    file = ModelFile("/m/a.gguf", "a.gguf", "/m", 1_234_000_000, 3, "draft")
    assert draft_page.label(file) == "a.gguf (1.2 GB, 3 files, the draft it was started with)"
    assert draft_page.label(ModelFile("/m/a.gguf", "a.gguf", "/m", None, None, "")) == "a.gguf"
    assert [draft_page.size(n) for n in (12, 2_500, 3_400_000)] == ["12 bytes", "2.5 kB", "3.4 MB"]
