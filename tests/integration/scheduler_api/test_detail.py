"""The detail in a real Valkey: what is kept, for how long, within which bytes, and how a range is read."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from scheduler_api import live, strict_json
from scheduler_api.history import detail, ranges
from scheduler_api.history.chunks import Chunk
from scheduler_api.history.detail import Writer
from scheduler_api.models import Server
from tests.conftest import client_of
from tests.support.stub_servers import engine_slot, iteration
from tests.support.tasks import ended
from tests.support.valkey import ValkeyProcess, at_once

T = 1_764_500_000.0
ID = 7


def write(*chunks: Chunk, server_id: int = ID, most_bytes: int = detail.MOST_BYTES) -> Writer:
    writer = Writer(server_id, most_bytes)

    async def all_of_them() -> None:
        async with live.async_client(settings.REDIS_URL) as client:
            for chunk in chunks:
                await writer.write(client, chunk, at_once(client))

    asyncio.run(all_of_them())
    return writer


def chunk(start: float, end: float, n: int, first: int = 0, **more: Any) -> Chunk:
    step = (end - start) / max(1, n)
    return Chunk(start, end, [iteration(first + at, start + at * step, gen=[[0, 1]], ms=step * 900) for at in range(n)], **more)


pytestmark = pytest.mark.usefixtures("valkey")


def test_a_range_is_read_from_its_chunks_each_iteration_once() -> None:
    again = chunk(T + 4, T + 6, 20, 40)
    again.iterations = [
        *chunk(T, T + 5, 50).iterations[-10:],
        *again.iterations[10:],
    ]  # a stream that was resumed tells some twice
    write(chunk(T, T + 5, 50), again, chunk(T + 6, T + 9, 30, 60))
    found = detail.read(ID, T + 1, T + 7)
    assert [each["i"] for each in found.iterations] == [*range(10, 50), *range(50, 71)]
    assert (found.oldest, found.gaps, found.cut) == (T, [], False)


def test_nothing_kept_is_an_empty_range_and_not_an_error() -> None:
    found = detail.read(ID, T, T + 60).as_json()
    assert found == {
        "from": T,
        "to": T + 60,
        "oldest": None,
        "iterations": [],
        "tasks": [],
        "marks": [],
        "gaps": [],
        "cut": False,
    }


def test_times_without_an_observer_and_times_without_a_server_are_gaps() -> None:
    write(chunk(T, T + 5, 5, gaps=[[T + 1, T + 2, "Down: connection refused."]]), chunk(T + 60, T + 65, 5, 5))
    found = detail.read(ID, T, T + 65)
    assert found.gaps == [[T + 1, T + 2, "Down: connection refused."], [T + 5, T + 60, detail.NOBODY]]
    assert detail.read(ID, T + 30, T + 62).gaps == [[T + 30, T + 60, detail.NOBODY]]


def test_tasks_overlap_the_range_and_those_that_run_are_told_with_their_state() -> None:
    running = {**ended(9, task=900, slot=1, submitted_at=T + 1), "n": None, "i": None, "finished_at": None, "state": "waiting"}
    early, long, late = (
        ended(1, submitted_at=T, finished_at=T + 1),
        ended(2, submitted_at=T + 1, finished_at=T + 8),
        ended(3, submitted_at=T + 7, finished_at=T + 8),
    )
    write(
        Chunk(T, T + 5, tasks=[early], open=[running, {**long, "finished_at": None, "n": None, "state": "prompt"}]),
        Chunk(T + 5, T + 10, tasks=[long, late], open=[running]),
    )
    found = detail.read(ID, T + 2, T + 6)
    assert [(task["task"], task["finished_at"]) for task in found.tasks] == [(102, T + 8), (900, None)]
    found = detail.read(ID, T, T + 10)
    assert [task["task"] for task in found.tasks] == [101, 102, 900, 103]


def test_too_many_tasks_are_cut_and_the_longest_waits_stay() -> None:
    tasks = [ended(n, submitted_at=T + n, first_visit_at=T + n + n % 100, finished_at=T + n + 100) for n in range(300)]
    write(Chunk(T, T + 400, tasks=tasks))
    found = detail.read(ID, T, T + 400, most_tasks=30)
    assert (found.cut, len(found.tasks)) == (True, 30)
    assert min(task["first_visit_at"] - task["submitted_at"] for task in found.tasks) == 90
    assert [task["n"] for task in found.tasks] == sorted(task["n"] for task in found.tasks)


def test_old_chunks_go_and_the_newest_stay_within_the_bytes(valkey: ValkeyProcess) -> None:
    write(*(chunk(T + n * 60, T + n * 60 + 60, 10, n * 10) for n in range(20)))
    entries = detail.index(ID)
    assert (entries[0].end, entries[-1].end) == (T + 240, T + 1200)
    with redis.Redis.from_url(valkey.url) as store:
        assert len(store.keys(f"slotboard:detail:{ID}:*")) == len(entries) == 17
        assert 0 < store.ttl(detail.index_key(ID)) <= detail.KEPT_S
        assert all(0 < store.ttl(detail.chunk_key(ID, entry.number)) <= detail.KEPT_S for entry in entries)
    size = entries[0].size
    writer = write(*(chunk(T + 1200 + n, T + 1201 + n, 10, n * 10) for n in range(9)), most_bytes=size * 5)
    assert writer.entries is not None
    assert len(writer.entries) <= 5
    assert sum(entry.size for entry in detail.index(ID)) <= size * 5


def test_another_observer_goes_on_where_the_last_one_ended() -> None:
    write(chunk(T, T + 5, 5), chunk(T + 5, T + 10, 5, 5))
    write(chunk(T + 10, T + 15, 5, 10))
    assert [entry.number for entry in detail.index(ID)] == [1, 2, 3]
    assert len(detail.read(ID, T, T + 15).iterations) == 15


def test_a_server_that_is_removed_leaves_nothing(valkey: ValkeyProcess) -> None:
    write(chunk(T, T + 5, 5))

    async def remove() -> None:
        async with live.async_client(valkey.url) as client:
            await client.delete(*await detail.keys(client, ID))

    asyncio.run(remove())
    with redis.Redis.from_url(valkey.url) as store:
        assert store.keys("slotboard:detail:*") == []


def test_the_live_state_tells_what_no_chunk_tells_yet(valkey: ValkeyProcess) -> None:
    mark = {"t": T + 2, "iteration": 3, "kind": "policy", "text": "phase: a to b", "by": "", "version": 2}
    write(chunk(T, T + 5, 5, marks=[mark], policy={"phase": "a"}))
    state = {
        "t": T + 7,
        "iterations": chunk(T + 4, T + 7, 3, 4).iterations,
        "tasks": [ended(5, submitted_at=T + 5, finished_at=T + 6)],
        "slots": [engine_slot(1, state="prompt", task=77, submitted_at=T + 6)],
        "marks": [{**mark, "by": "mira"}],
        "policy": {"effective": {"phase": "b"}},
        "info": {},
    }
    with redis.Redis.from_url(valkey.url) as store:
        store.set(live.state_key(ID), strict_json.dumps(state))
    found = detail.read(ID, T, T + 8)
    assert [each["i"] for each in found.iterations] == list(range(7))
    assert [(task["task"], task["finished_at"]) for task in found.tasks] == [(105, T + 6), (77, None)]
    assert [each["by"] for each in found.marks] == ["mira"]
    assert (detail.policy_at(found, T + 1), detail.policy_at(found, T + 6)) == ({"phase": "a"}, {"phase": "b"})
    assert ranges.newest(ID) == T + 7


def test_a_dead_valkey_reads_as_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    write(chunk(T, T + 5, 5))
    monkeypatch.setattr(live, "client", lambda: redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=0.2))
    assert detail.read(ID, T, T + 5).as_json()["oldest"] is None


def test_case_30_a_range_with_more_is_merged_and_its_tokens_are_all_there() -> None:
    write(*(chunk(T + n, T + n + 1, 1000, n * 1000) for n in range(30)))
    begin = time.perf_counter()
    found = detail.read(ID, T, T + 31)
    print(f"30,000 iterations read and merged in {time.perf_counter() - begin:.2f} s")
    assert 2000 < len(found.iterations) <= 4000
    assert sum(n for each in found.iterations for _, n in each["gen"]) == 30_000


def test_fairness_of_a_long_range_is_counted_chunk_by_chunk() -> None:
    """A task that runs over many chunks, and a range with more iterations than are ever read at once."""
    running = {
        **ended(1, task=500, submitted_at=T, client="agent"),
        "n": None,
        "i": None,
        "finished_at": None,
        "state": "generating",
    }
    chunks = [chunk(T + n, T + n + 1, 1000, n * 1000, open=[running]) for n in range(120)]
    chunks.append(
        chunk(
            T + 120,
            T + 121,
            10,
            120_000,
            tasks=[ended(1, i=120_009, task=500, submitted_at=T, client="agent", finished_at=T + 121)],
        )
    )
    write(*chunks)
    begin = time.perf_counter()
    found = ranges.fairness(ID, T, T + 122)
    print(f"120,000 iterations counted in {time.perf_counter() - begin:.2f} s")
    assert found["clients"] == [{"client": "agent", "tokens": 120_010, "share": 1.0, "tasks": 1}]
    assert (found["itl"]["n"], found["slots"][0]["busy_s"]) == (120_009, 121.0)
    assert found["itl"]["p50"] == pytest.approx(0.001, rel=0.03)
    part = ranges.fairness(ID, T + 10, T + 20)
    assert (part["clients"][0]["tokens"], part["slots"][0]["busy_s"]) == (10_000, 10.0)


# HTTP


@pytest.fixture
def server(db: None) -> Server:
    return Server.objects.create(pk=ID, name="local", kind="engine", base_url="http://127.0.0.1:9")


@pytest.fixture
def ask(server: Server, viewer: User) -> Callable[..., Any]:
    client = client_of(viewer)
    return lambda path, **query: client.get(
        f"/api/servers/{server.pk}/{path}", {name.rstrip("_"): value for name, value in query.items()}
    )


PATHS = ("detail", "fairness", "history", "stall?slot=1")


@pytest.mark.parametrize("path", PATHS)
def test_without_a_login_nothing_is_told(server: Server, client: Client, path: str) -> None:
    assert client.get(f"/api/servers/{server.pk}/{path}").status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_an_unknown_server_is_not_found(viewer_client: Client, path: str) -> None:
    assert viewer_client.get(f"/api/servers/991/{path}").status_code == 404


@pytest.mark.parametrize("path", ["detail", "fairness", "history"])
@pytest.mark.parametrize(
    "query", [{"from_": "x"}, {"to": "nan"}, {"from_": "5", "to": "5"}, {"from_": "1", "to": "9e9"}, {"to": "1e300"}]
)
def test_a_range_that_is_none_is_refused(ask: Callable[..., Any], path: str, query: dict[str, str]) -> None:
    assert ask(path, **query).status_code == 422


@pytest.mark.parametrize("path", ["detail", "fairness", "history"])
def test_a_server_of_which_nothing_is_kept_has_empty_answers(ask: Callable[..., Any], path: str) -> None:
    for format_ in ("json", "csv"):
        assert ask(path, format=format_).status_code == 200


def test_without_a_stall_there_is_nothing_to_explain(ask: Callable[..., Any]) -> None:
    response = ask("stall", slot=1)
    assert (response.status_code, response.json()["detail"]) == (404, "Slot 1 had no work without a token in this range.")
    assert ask("stall", slot=1, from_=T, to=T + 3600).status_code == 422
    assert ask("stall").status_code == 422


def rows(response: Any) -> list[list[str]]:
    assert response["content-type"] == "text/csv; charset=utf-8"
    assert response["content-disposition"].startswith("attachment; filename=")
    return list(csv.reader(io.StringIO(response.content.decode())))


def test_csv_carries_no_formula_and_no_row_is_lost(ask: Callable[..., Any]) -> None:
    evil = "=HYPERLINK(1)"
    tasks = [
        ended(1, i=2, client=evil, submitted_at=T, finished_at=T + 3),
        ended(2, i=4, client="@a", slot=1, submitted_at=T, finished_at=T + 5),
    ]
    some = [iteration(n, T + n, prompt=[[0, 10], [1, 2]], gen=[[2, 1]], ms=900) for n in range(5)]
    write(Chunk(T, T + 6, some, tasks))
    query = {"from_": T, "to": T + 6, "format": "csv"}
    told = rows(ask("detail", **query))
    assert (len(told), told[1][told[0].index("prompt")], told[1][told[0].index("prompt_tokens")]) == (6, "0:10 1:2", "12")
    told = rows(ask("detail", **query, table="tasks"))
    assert [row[told[0].index("client")] for row in told[1:]] == [f"'{evil}", "'@a"]
    told = rows(ask("fairness", **query))
    assert {row[1] for row in told if row[0] == "client"} == {f"'{evil}", "'@a"}
    assert next(row for row in told if row[1] == "jain_slots")[-1] != ""


def test_a_stall_as_a_table(ask: Callable[..., Any]) -> None:
    some = [
        {**iteration(n, T + n, prompt=[[0, 100]], ms=1000), "skipped": [[1, "batch full, slot 0 took 100 of 100"]]}
        for n in range(4)
    ]
    some.append(iteration(4, T + 4, prompt=[[1, 5]], ms=100))
    tasks = [
        ended(1, i=3, client="doc", n_prompt=400, submitted_at=T, prompt_done_at=T + 4, finished_at=T + 4),
        ended(2, i=4, client="chat", slot=1, n_prompt=5, submitted_at=T + 0.5, first_visit_at=T + 4, finished_at=T + 4.1),
    ]
    policy = {"prefill_order": "physical", "rotation_start": "after_first", "phase": "continuous"}
    write(Chunk(T, T + 5, some, tasks, policy=policy, info={"n_slots": 2, "n_batch": 100, "n_ubatch": 100, "kv_mode": "split"}))
    query = {"slot": 1, "from_": T, "to": T + 5}
    found = ask("stall", **query).json()
    assert (found["from"], found["to"], found["reason"], found["blockers"][0]["client"]) == (T + 0.5, T + 4, "batch full", "doc")
    waits = {each["policy"]["prefill_order"]: each["wait_s"] for each in found["elsewhere"]}
    assert waits == {
        "physical": pytest.approx(3.5, abs=0.1),
        **dict.fromkeys(("rotating", "fair", "shortest_first"), pytest.approx(0.5)),
    }
    told = rows(ask("stall", **query, format="csv"))
    assert [row[0] for row in told] == ["kind", "blocker", *["elsewhere"] * 4]


def test_the_schema_describes_them(viewer_client: Client) -> None:
    paths = viewer_client.get("/api/openapi.json").json()["paths"]
    assert {f"/api/servers/{{server_id}}/{name}" for name in ("detail", "fairness", "stall", "history")} <= paths.keys()
