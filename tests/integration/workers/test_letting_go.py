"""The end of a stop: what is said of slots that a server holds on to, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from scheduler_api import selectors as registry
from scheduler_api.models import Server, ServerKind
from tests.support.stub_servers import FakeLlamaServer, busy_slot, running, unused_port
from workers import lease, letting_go, recording, selectors
from workers.models import Run, RunState

BUSY = [busy_slot(0), busy_slot(2)]


@pytest.fixture
def stock(transactional_db: None) -> Iterator[FakeLlamaServer]:
    with running(FakeLlamaServer(slots=BUSY)) as server:
        yield server
        server.held.clear()


def run_on(url: str, kind: str = ServerKind.LLAMA_SERVER) -> Run:
    server = Server.objects.create(name="stock", kind=kind, base_url=url)
    held: dict[str, Any] = {"state": RunState.STOPPING, "lease": "mine", "heartbeat_at": timezone.now(), "stop_requested": True}
    return Run.objects.create(scenario="warm-behind-cold", server=server, repetitions=1, seed=1, **held)


def stop(run: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], float]:
    """The progress told until the run was over, and the seconds it took."""
    told: list[str] = []

    def write(pk: int, held: str, **fields: Any) -> None:
        told.append(fields.get("progress_text", ""))
        real(pk, held, **fields)

    real = lease.write
    monkeypatch.setattr(lease, "write", write)
    begun = time.monotonic()
    recording.finish(run, "mine", RunState.STOPPED, "", [])
    took = time.monotonic() - begun
    run.refresh_from_db()
    assert run.state == RunState.STOPPED
    return told, took


def test_two_slots_that_hold_on_are_named_before_the_run_is_over(stock: FakeLlamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letting_go, "slots_of", lambda run: None)
    run = run_on(stock.url)
    told, took = stop(run, monkeypatch)
    sentence = "2 slots still busy at the end (0, 2): a batch in flight runs to its end."
    assert told == ["Its requests are closed", f"Its requests are closed. {sentence}", ""]
    assert run.warnings == [sentence]
    assert sentence in [line["text"] for line in selectors.log(run)]
    assert took < 5  # on a loaded machine; half a second on a quiet one


def test_only_its_own_slots_count_and_free_ones_end_the_wait(stock: FakeLlamaServer) -> None:
    run = run_on(stock.url)
    assert letting_go.slots_of(run) == {0, 1}
    assert letting_go.still_busy(run).startswith("1 slot still busy at the end (0):")
    stock.slots = [busy_slot(2)]
    begun = time.monotonic()
    assert letting_go.still_busy(run) == ""
    assert time.monotonic() - begun < 5


def test_a_server_that_does_not_answer_meanwhile_is_told_as_it_was_last_seen(
    stock: FakeLlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A llama-server answers /slots when its batch is done, which can take minutes: a stop does not wait for that."""
    stock.held.add("/slots")
    run = run_on(stock.url)
    begun = time.monotonic()
    assert letting_go.still_busy(run) == letting_go.NO_ANSWER
    slots = [{"id": 0, "state": "prompt"}, {"id": 1, "state": "generating"}, {"id": 2, "state": "idle"}]
    monkeypatch.setattr(registry, "live_state", lambda pk: {"slots": slots})
    assert letting_go.still_busy(run).startswith("2 slots still busy when last seen (0, 1): the server has not answered since")
    assert time.monotonic() - begun < 8  # two of them, and not the ten seconds of any other question
    assert stock.most_pending <= 2


def test_what_is_not_there_or_tells_of_no_slots_is_not_called_free(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert letting_go.still_busy(run_on(f"http://127.0.0.1:{unused_port()}")) == letting_go.NO_ANSWER
    Server.objects.update(name="gone")
    Run.objects.update(state=RunState.LOST)
    run = run_on("http://127.0.0.1:1", ServerKind.OPENAI)
    told, _ = stop(run, monkeypatch)
    assert told[1] == f"Its requests are closed. {letting_go.NO_SLOTS}"
    assert run.warnings == []  # nothing is amiss; the log has it
    assert letting_go.NO_SLOTS in [line["text"] for line in selectors.log(run)]
