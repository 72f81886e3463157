"""The observer against an engine that answers what it is told, with a real Valkey."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from asgiref.sync import sync_to_async

from scheduler_api import live, policies
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import carried_on, frames_of, observing, register
from tests.support.stub_servers import FakeEngine, engine_slot, iteration, running, unused_port
from tests.support.valkey import ValkeyProcess

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


async def add(name: str, url: str, kind: str = "engine", **more: object) -> Server:
    return await sync_to_async(register)(name, kind, url, **more)


async def test_a_state_has_every_part_of_the_protocol() -> None:
    with running(FakeEngine()) as engine:
        engine.slots[1] = engine_slot(
            1, state="prompt", task=5, n_prompt=900, n_processed=300, submitted_at=time.time(), client="chat"
        )
        engine.iterations = [iteration(1, time.time() - 0.1, prompt=[[1, 300]])]
        server = await add("local", engine.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: bool(state["iterations"]))
    assert state.keys() == {
        *(
            "seq",
            "t",
            "server",
            "observer",
            "health",
            "info",
            "policy",
            "switching",
            "phase",
            "cursor",
            "anchor",
            "iteration",
            "queue",
        ),
        *("figures", "slots", "units", "iterations", "tasks", "fairness", "marks", "missing"),
    }
    assert state["server"] == {"id": server.pk, "name": "local", "kind": "engine", "url": engine.url}
    assert (state["health"]["state"], state["health"]["text"]) == ("up", "Serving")
    assert (state["info"]["backend"], state["info"]["kv_mode"], state["info"]["n_slots"]) == ("simulated", "split", 2)
    assert state["switching"]["can"] is True
    assert state["switching"]["fields"]["prefill_order"]["values"] == ["physical", "rotating"]
    assert [slot["state"] for slot in state["slots"]] == ["idle", "prompt"]
    assert state["slots"][0]["rate"] is None
    assert state["slots"][1]["rate"] > 0
    assert state["slots"][1]["client"] == "chat"
    assert state["iterations"][-1]["prompt"] == [[1, 300]]
    assert sum(value for _, value in state["figures"]["prompt_series"]) * 2 == pytest.approx(300, abs=1)


async def test_frames_carry_the_state_on_without_a_gap_and_at_most_four_a_second() -> None:
    with running(FakeEngine()) as engine:
        server = await add("local", engine.url)
        async with observing() as watching:
            first = await watching.until(server, lambda state: state["health"]["state"] == "up")
            async with frames_of(server) as frames:
                for number in range(1, 60):
                    now = time.time()
                    engine.slots[0] = engine_slot(0, state="generating", task=1, n_generated=number, submitted_at=now - 1)
                    engine.iterations = [*engine.iterations, iteration(number, now, gen=[[0, 1]], ms=20)]
                    engine.tell()
                    await asyncio.sleep(0.04)
                state = await watching.until(server, lambda state: state["iteration"] == 59)
                await asyncio.sleep(0.3)
                last = await watching.state(server)
            seen = [frame for frame in frames if frame["seq"] > first["seq"]]
            span = seen[-1]["t"] - seen[0]["t"]
    assert len(seen) <= span * 4 + 2
    assert [later["seq"] - earlier["seq"] for earlier, later in pairwise(frames)] == [1] * (len(frames) - 1)
    assert last is not None
    assert [each["i"] for each in state["iterations"]] == list(range(1, 60))
    assert carried_on(first, frames)["slots"] == last["slots"]
    assert state["figures"]["gen_tps"] == pytest.approx(25, rel=0.5)


async def test_a_policy_change_leaves_a_mark_with_the_name_from_the_audit() -> None:
    with running(FakeEngine()) as engine:
        server = await add("local", engine.url)
        async with observing() as watching:
            await watching.until(server, lambda state: state["policy"] is not None)
            await sync_to_async(policies.switch)(
                server, {"prefill_order": "rotating"}, actor=None, actor_name="run 12", reason="arm B"
            )
            state = await watching.until(server, lambda state: any(mark["by"] == "run 12" for mark in state["marks"]))
            [mark] = state["marks"]
            assert (mark["kind"], mark["text"]) == ("policy", "prefill order: physical to rotating")
            engine.version, engine.requested, engine.reason = 3, {"prefill_order": "physical"}, "back by itself"
            engine.tell()
            state = await watching.until(server, lambda state: len(state["marks"]) == 2)
    assert state["marks"][1]["by"] == "back by itself"


async def test_a_restarted_engine_is_marked_and_its_iterations_begin_anew() -> None:
    engine = FakeEngine(iterations=[iteration(i, time.time(), gen=[[0, 1]]) for i in range(1, 50)])
    async with observing() as watching:
        with running(engine):
            server = await add("local", engine.url)
            before = await watching.until(server, lambda state: state["iteration"] == 49)
        engine.started_at, engine.iterations = 2000.0, [iteration(1, time.time(), gen=[[0, 1]])]
        with running(engine, int(engine.url.rpartition(":")[2])):
            state = await watching.until(server, lambda state: [each["i"] for each in state["iterations"]] == [1])
    assert [mark["kind"] for mark in state["marks"]] == ["restart"]
    assert state["seq"] > before["seq"]
    assert all(value is None or value >= 0 for _, value in state["figures"]["gen_series"])


async def test_a_dead_engine_is_down_with_the_reason_and_comes_back() -> None:
    engine = FakeEngine()
    with running(engine):
        server = await add("local", engine.url)
        port = int(engine.url.rpartition(":")[2])
    async with observing() as watching:
        state = await watching.until(server, lambda state: state["health"]["state"] == "down")
        assert state["health"]["text"] == "Down: connection refused"
        assert state["health"]["seen_at"] is None
        assert (state["slots"], state["queue"], state["policy"], state["figures"]["prompt_tps"]) == ([], None, None, None)
        assert state["missing"]["slots"] == "Down: connection refused."
        assert state["switching"]["can"] is False
        with running(FakeEngine(), port):
            state = await watching.until(server, lambda state: state["health"]["state"] == "up")
            assert state["missing"] == {}
            assert len(state["slots"]) == 2


async def test_a_stream_that_breaks_off_is_resumed_after_the_last_iteration() -> None:
    engine = FakeEngine(iterations=[iteration(i, time.time(), gen=[[0, 1]]) for i in range(1, 8)])
    with running(engine):
        server = await add("local", engine.url)
        async with observing() as watching:
            # by the stream: the snapshot before it names the last iteration too
            await watching.until(server, lambda state: [each["i"] for each in state["iterations"][-1:]] == [7])
            engine.raw_updates.append(b"event: update\ndata: {broken\n\n")
            await asyncio.sleep(0.1)
            engine.iterations = [*engine.iterations, iteration(8, time.time(), gen=[[0, 1]])]
            state = await watching.until(server, lambda state: [each["i"] for each in state["iterations"][-1:]] == [8])
    assert engine.resumed_after[-1] == "7"
    assert [each["i"] for each in state["iterations"]] == list(range(1, 9))
    assert state["marks"] == []


async def test_an_event_that_never_ends_is_cut_off_and_said() -> None:
    """16 MiB without an end of the event: what was read of it is thrown away, and the stream begun anew."""
    with running(FakeEngine()) as engine:
        server = await add("local", engine.url)
        async with observing() as watching:
            await watching.until(server, lambda state: state["health"]["state"] == "up")
            engine.raw_updates += [b"event: update\ndata: ", *[b"x" * (1 << 20)] * 17]
            state = await watching.until(server, lambda state: state["health"]["state"] == "down")
            assert state["health"]["text"] == "Down: an event of the stream is too large"
            await watching.until(server, lambda state: state["health"]["state"] == "up")
    assert len(engine.resumed_after) == 2


@pytest.mark.parametrize(("key", "text"), [("", "Key not accepted"), ("wrong", "Key not accepted")])
async def test_a_key_that_is_not_accepted_is_said(key: str, text: str) -> None:
    with running(FakeEngine(api_key="right")) as engine:
        server = await add("local", engine.url, api_key=key)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "unauthorised")
    assert state["health"]["text"] == text
    assert state["health"]["detail"] == "Invalid API Key"


async def test_servers_are_picked_up_changed_and_dropped_within_two_seconds() -> None:
    with running(FakeEngine()) as one, running(FakeEngine()) as two:
        async with observing() as watching:
            server = await add("late", one.url)
            await watching.until(server, lambda state: state["health"]["state"] == "up", 2.5)
            server.base_url, server.name = two.url, "moved"
            await sync_to_async(server.save)()
            await watching.until(
                server, lambda state: state["server"]["url"] == two.url and state["server"]["name"] == "moved", 2.5
            )
            server.enabled = False
            await sync_to_async(server.save)()
            async with asyncio.timeout(2.5):
                while await watching.state(server) is not None:
                    await asyncio.sleep(0.05)


async def test_nonsense_from_one_server_touches_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class FakeNonsense(FakeEngine):
        def state(self) -> dict[str, object]:
            slots = [{"id": 0, "since": "soon", "state": 7}, 3]
            return {"policy": {"version": "x"}, "slots": slots, "server": [], "queue": "deep"}

    with running(FakeNonsense()) as odd, running(FakeEngine()) as good:
        bad, fine = await add("odd", odd.url), await add("good", good.url)
        async with observing() as watching:
            await watching.until(bad, lambda state: len(state["slots"]) == 1)
            before = await watching.until(fine, lambda state: state["health"]["state"] == "up")
            await watching.until(fine, lambda state: state["seq"] > before["seq"])


async def test_a_crash_in_one_task_is_shown_and_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler_api.observer import watch
    from scheduler_api.observer.board import Board

    monkeypatch.setattr(watch, "CRASH_PAUSE_S", 0.5)
    apply = Board.apply
    broken = {"odd"}

    def fail(self: Board, report: object, now: float) -> None:
        if self.identity.name in broken and type(report).__name__ == "Reading":
            raise ZeroDivisionError
        apply(self, report, now)  # type: ignore[arg-type]

    monkeypatch.setattr(Board, "apply", fail)
    with running(FakeEngine()) as engine:
        bad, fine = await add("odd", engine.url), await add("good", engine.url)
        async with observing() as watching:
            state = await watching.until(
                bad, lambda state: state["health"]["state"] == "unknown" and "failed" in state["health"]["text"]
            )
            assert "tries again" in state["health"]["text"]
            await watching.until(fine, lambda state: state["health"]["state"] == "up")
            broken.clear()
            await watching.until(bad, lambda state: state["health"]["state"] == "up")


async def test_an_observer_started_again_carries_the_sequence_on() -> None:
    with running(FakeEngine()) as engine:
        server = await add("local", engine.url)
        async with observing() as watching:
            await watching.until(server, lambda state: state["health"]["state"] == "up")
            last = await watching.state(server)
        assert last is not None
        async with observing() as watching, frames_of(server) as frames:
            await watching.until(server, lambda state: state["seq"] > last["seq"] and state["health"]["state"] == "up")
            await asyncio.sleep(0.1)
    assert frames[0]["seq"] == last["seq"] + 1


async def test_states_expire_when_nobody_writes_them(valkey: ValkeyProcess) -> None:
    with running(FakeEngine()) as engine:
        server = await add("local", engine.url)
        async with observing() as watching:
            await watching.until(server, lambda state: True)
            assert 0 < await watching.client.ttl(live.state_key(server.pk)) <= 60


async def test_it_ends_soon_after_it_is_told_to() -> None:
    with running(FakeEngine()) as engine:
        await add("local", engine.url)
        await add("gone", f"http://127.0.0.1:{unused_port()}")
        async with observing() as watching:
            await asyncio.sleep(0.5)
            begin = time.monotonic()
            watching.stop.set()
        assert time.monotonic() - begin < 2
