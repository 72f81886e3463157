"""A run in a file and back: the same result, and files that are none are refused with the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from scheduler_api.models import Server
from tests.support import sample_loads, sample_rows
from workers import queueing, selectors
from workers.errors import ExportRefused, ImportRefused
from workers.exporting import importing
from workers.exporting.document import as_csv, as_json, document, file_name
from workers.exporting.importing import import_run
from workers.models import Block, Run, RunState, Sample

type Json = dict[str, Any]


@pytest.fixture
def server(db: None) -> Server:
    return sample_rows.make_server()


def load_run(server: Server, pairs: int = 6) -> Run:
    return sample_loads.make_load_run(server, pairs=pairs)


def pair_run(server: Server) -> Run:
    return sample_rows.make_run(server, pairs=6)


def without_numbers(found: Json) -> Json:
    """A result without the numbers that runs have on their own console."""
    noise = found["noise"] and {name: value for name, value in found["noise"].items() if name != "run"}
    return {**found, "noise": noise}


@pytest.mark.parametrize("make", [load_run, pair_run])
def test_a_run_comes_back_with_an_equal_result_and_the_same_bytes(server: Server, make: Callable[[Server], Run]) -> None:
    run = make(server)
    data = as_json(run)
    back = import_run(data, None)
    assert back.pk != run.pk
    assert without_numbers(selectors.results(back)) == without_numbers(selectors.results(run))
    assert (back.samples.count(), back.blocks.count()) == (run.samples.count(), run.blocks.count())
    assert as_json(back) == data
    rows = [line.split(",", 2)[2] for line in as_csv(run).splitlines()]
    assert [line.split(",", 2)[2] for line in as_csv(back).splitlines()] == rows
    assert selectors.compare(run, back)["comparable"]


def test_an_imported_run_says_where_it_came_from_and_belongs_to_no_server(server: Server) -> None:
    operator = User.objects.create_user("mira")
    run = pair_run(server)
    back = import_run(as_json(run), operator)
    assert back.imported is not None
    assert (back.imported["run"], back.imported["server"], back.imported["by"]) == (
        run.pk,
        {"name": server.name, "kind": server.kind},
        "mira",
    )
    assert (back.server_id, back.created_by, back.created_at) == (None, operator, run.created_at)
    assert back not in selectors.list_runs(server)
    assert back.pk not in [point["run"] for point in selectors.trend(run)["runs"]]
    assert [point["run"] for point in selectors.trend(back)["runs"]] == [back.pk]
    assert queueing.in_the_way(server) is None
    assert (file_name(run, "json"), file_name(back, "json")) == (
        f"slotboard-run-{run.pk}.json",
        f"slotboard-imported-run-{run.pk}.json",
    )


def test_a_file_holds_no_address_key_or_person_and_is_strict(server: Server) -> None:
    server.api_key = "sk-very-secret"
    server.save(update_fields=["api_key"])
    run = load_run(Server.objects.get(pk=server.pk), 1)
    Run.objects.filter(pk=run.pk).update(created_by=User.objects.create_user("mira"), worker="host-7 pid 4", celery_id="c-1")
    run.refresh_from_db()
    Sample.objects.filter(run=run).update(error="=1+1")
    text = as_json(run).decode()
    for hidden in ("sk-very-secret", server.base_url, "mira", "host-7", "c-1"):
        assert hidden not in text
    run.conditions["fitted"]["speed"] = float("nan")
    assert document(run)["run"]["conditions"]["fitted"]["speed"] is None


def test_a_run_under_way_is_not_exported(server: Server) -> None:
    run = pair_run(server)
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING)
    run.refresh_from_db()
    with pytest.raises(ExportRefused, match="still under way"):
        as_json(run)


def changed(server: Server, change: Callable[[Json], Any]) -> bytes:
    content = json.loads(as_json(sample_rows.make_run(server, pairs=1)))
    change(content)
    return json.dumps(content).encode()


def put(*path: Any, value: Any) -> Callable[[Json], None]:
    def change(content: Json) -> None:
        for part in path[:-1]:
            content = content[part]
        content[path[-1]] = value

    return change


def sample(name: str, value: Any) -> Callable[[Json], None]:
    return put("blocks", 1, "samples", 0, name, value=value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("format", value="locust"), "its format is not 'slotboard-run'"),
        (put("format_version", value=9), "version 9 of the format, and this console reads version 1"),
        (put("more", value=1), "the file has unknown fields: more"),
        (put("run", "state", value="running"), "that of a run that is over, not running"),
        (put("run", "state", value="done"), "run.state must be one of waiting, queued"),
        (put("run", "server", value=1), "run has unknown fields: server"),
        (put("run", "imported", value={}), "run has unknown fields: imported"),
        (put("run", "number", value="1"), "run.number must be a whole number"),
        (put("run", "repetitions", value=10**9), "run.repetitions must be at most 100"),
        (put("run", "conditions", value=[]), r"run.conditions must be an object, not \[\]"),
        (put("run", "conditions", "fitted", value={"speed": "fast"}), "conditions.fitted.speed is no number"),
        (put("run", "scenario_text", value="name: [}"), "do not make a result: ScenarioError"),
        (
            sample("sent_at", "noon"),
            r"samples\[0\].sent_at must be a number, not 'noon'",
        ),
        (sample("slot", -1), r"samples\[0\].slot is refused: ensure this value is greater"),
        (
            sample("role", "x" * 41),
            r"samples\[0\].role is refused: ensure this value has at most 40",
        ),
        (
            sample("chunks_ms", ["a"]),
            r"samples\[0\].chunks_ms must be a list of at most",
        ),
        (put("blocks", 1, "index", value=1), r"blocks\[1\].index is that of another block: 1"),
        (put("blocks", 1, "started_at", value="2026-01-01"), r"blocks\[1\].started_at must be a moment with its time zone"),
        (put("blocks", 1, "timeline", value={"iterations": [{"t": "x"}]}), "do not make a result: ValueError"),
        (
            put("blocks", 1, "timeline", value={"requests": [{"sent_at": 1, "role": "cold", "done_at": "later"}]}),
            "done_at of a timeline",
        ),
        (put("run", "warnings", value=[{}]), "a warning is no text"),
        (put("blocks", 1, "samples", value=None), r"blocks\[1\].samples must be a list"),
        (put("noise", value={"difference": 0.1}), "noise must be null, or have a difference"),
        (put("server", value={"name": "x"}), "server must have a name and a kind"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_nothing_is_kept(
    server: Server, change: Callable[[Json], None], told: str
) -> None:
    data = changed(server, change)
    before = (Run.objects.count(), Block.objects.count(), Sample.objects.count())
    with pytest.raises(ImportRefused, match=told):
        import_run(data, None)
    assert (Run.objects.count(), Block.objects.count(), Sample.objects.count()) == before


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (b"run,block\r\n1,1\r\n", "not JSON: line 1, column 1"),
        (b'{"format": "slotboard-run", "x": NaN}', "NaN is no number of JSON"),
        (b'{"format": 1, "format": 2}', "'format' stands twice in one object"),
        (b"[" * 100_000, "not strict JSON"),
        (b"[]", "not an exported run"),
        (b"9" * 5000, "not strict JSON"),
    ],
)
def test_files_that_are_no_run(db: None, data: bytes, told: str) -> None:
    with pytest.raises(ImportRefused, match=told):
        import_run(data, None)


def test_limits_of_size(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    data = as_json(pair_run(server))
    for name, told in (
        ("MOST_SAMPLES", "more than 3 samples"),
        ("MOST_BLOCKS", "at most 3 are read"),
        ("MOST_BYTES", "at most 0 MB"),
    ):
        monkeypatch.setattr(importing, name, 3)
        with pytest.raises(ImportRefused, match=told):
            import_run(data, None)
        monkeypatch.setattr(importing, name, 1 << 30)
