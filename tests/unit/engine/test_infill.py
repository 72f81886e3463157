"""The prompt of an infill request, put together as llama-server puts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.backends.base import FimTokens
from engine.backends.simulated import SimulatedBackend
from engine.http.infill import InfillSizes, infill_prompt
from engine.options import parse_options
from tests.unit.engine.harness import free_backend, served

SIZES = InfillSizes(n_batch=64, n_ctx=512, n_predict=-1, suffix_first=False)
GAP = {"input_prefix": "def ", "input_suffix": "return", "prompt": "f("}


@pytest.fixture
def backend() -> SimulatedBackend:
    return free_backend(parse_options(["--backend", "simulated"], {}))


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_prefix_prompt_suffix_middle(backend: SimulatedBackend) -> None:
    fim, bos = backend.info.fim, backend.info.bos
    wanted = [bos, fim.prefix, *ids("def "), *ids("f("), fim.suffix, *ids("return"), fim.middle]
    assert infill_prompt(GAP, backend, SIZES) == wanted
    first = [bos, fim.suffix, *ids("return"), fim.prefix, *ids("def "), *ids("f("), fim.middle]
    assert infill_prompt(GAP, backend, replace(SIZES, suffix_first=True)) == first
    backend.info = replace(backend.info, add_bos=False)
    assert infill_prompt(GAP, backend, SIZES) == wanted[1:]
    assert infill_prompt({**GAP, "input_prefix": ["de", 102, " "]}, backend, SIZES) == wanted[1:]


def test_the_parts_nearest_the_gap_fit_a_batch(backend: SimulatedBackend) -> None:
    before, after = "".join(map(chr, range(33, 97))), "".join(map(chr, range(33, 73)))
    prompt = infill_prompt({"input_prefix": before, "input_suffix": after, "prompt": "xyz"}, backend, SIZES)
    fim = backend.info.fim
    assert prompt[1:] == [fim.prefix, *ids(before[-48:]), *ids("xyz"), fim.suffix, *ids(after[:11]), fim.middle]


def test_extra_files_come_first_and_take_what_the_context_leaves(backend: SimulatedBackend) -> None:
    files = {**GAP, "input_extra": [{"filename": "a.h", "text": "int a;"}, {"text": "int b;"}]}
    fim = backend.info.fim
    marks = "\n\n--- snippet ---\n\n"
    prompt = infill_prompt(files, backend, SIZES)
    assert prompt[: prompt.index(backend.info.bos)] == backend.tokenize(f"{marks}int a;{marks}int b;", add_special=False)
    backend.info = replace(backend.info, fim=replace(fim, repo=7, separator=8))
    prompt = infill_prompt(files, backend, SIZES)
    parts = [7, *ids("myproject\n"), 8, *ids("a.h\n"), *ids("int a;"), 8, *ids("tmp\n"), *ids("int b;"), 8, *ids("filename\n")]
    assert len(parts) == prompt.index(backend.info.bos)
    assert backend.detokenize(prompt[: len(parts)]) == backend.detokenize(parts)
    small = infill_prompt(files, backend, replace(SIZES, n_ctx=64 + 2 * 10 + 5, n_predict=10))
    assert small.index(backend.info.bos) == 5
    assert small[:5] == prompt[len(parts) - 5 : len(parts)]


@pytest.mark.parametrize(
    "extra", [5, [5], [{}], [{"filename": "ok"}], [{"filename": 123}], [{"filename": 123, "text": "abc"}], [{"text": 456}]]
)
async def test_wrong_extra_files_are_refused(extra: Any) -> None:
    async with served() as engine:
        response = await engine.post("/infill", {**GAP, "input_extra": extra})
        assert response.status_code == 400
        assert "input_extra" in response.json()["error"]["message"]


@pytest.mark.parametrize("missing", ["input_prefix", "input_suffix"])
async def test_both_sides_of_the_gap_are_needed(missing: str) -> None:
    async with served() as engine:
        response = await engine.post("/infill", {name: text for name, text in GAP.items() if name != missing})
        assert response.status_code == 400
        assert response.json()["error"]["message"] == f'"{missing}" is required'


async def test_an_infill_is_a_completion_in_a_group_of_its_own() -> None:
    async with served() as engine:
        answer = (await engine.post("/infill", {**GAP, "n_predict": 3, "return_tokens": True})).json()
        assert (answer["tokens_predicted"], answer["stop_type"]) == (3, "limit")
        handle = engine.runner.task_of(None, answer["id_slot"])
        assert handle is not None
        assert handle.task.group.type == "infill"


async def test_a_model_without_the_marks_cannot(backend: SimulatedBackend) -> None:
    options = parse_options(["--backend", "simulated", "-np", "2", "-c", "512", "--no-kv-unified"], {})
    plain = free_backend(options)
    plain.info = replace(plain.info, fim=FimTokens(suffix=9))
    async with served(backend=plain) as engine:
        error = (await engine.post("/infill", GAP)).json()["error"]
        assert (error["code"], error["type"]) == (501, "not_supported_error")
        assert error["message"] == "Infill is not supported by this model: prefix token is missing. middle token is missing."
