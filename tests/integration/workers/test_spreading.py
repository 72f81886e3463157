"""A load over two shards against a server that counts: twice the load of one, each request once, stages together."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import pytest
from django.db import connection

from scheduler_api.models import Server, ServerKind
from tests.support.stub_openai import Asked, FakeOpenAi
from tests.support.stub_servers import running
from tests.support.valkey import ValkeyProcess
from workers import calibrating, experiments, sending, shardrun, steps
from workers.app import app
from workers.lease import Watch
from workers.load.clock import ClientClock
from workers.load.http import Wire
from workers.load.openai import Manner
from workers.load.planned import Plan, Scaling
from workers.load.shards import owners
from workers.models import Ended, Run, RunState
from workers.sending import Sender

TEXT = """
name: counted
version: 1
title: Counted
summary: Small requests, each of which can be told from every other.
written_for: 1000
scale: 1
streams:
  - name: one
    arrivals: ARRIVALS
    prompt: {tokens: 24}
    output: 2
"""


RATE = 36.0  # of both shards together
SECONDS = 0.8
MOST = 2  # connections of a shard
ANSWER_S = 0.1


@pytest.fixture
def counting() -> Iterator[FakeOpenAi]:
    with running(FakeOpenAi()) as server:
        yield server


@pytest.fixture(autouse=True)
def _second_worker(transactional_db: None, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process has the run; its call for a shard is heard by another thread, with a generator of its own."""
    threads: list[threading.Thread] = []

    def serve(shard_id: int) -> None:
        try:
            shardrun.serve(shard_id, "another pid 2")
        finally:
            connection.close()

    def send_task(name: str, arguments: tuple[int], **_: Any) -> None:
        threads.append(threading.Thread(target=serve, args=arguments))
        threads[-1].start()

    monkeypatch.setattr(app, "send_task", send_task)
    monkeypatch.setattr(experiments, "send", lambda run: None)
    monkeypatch.setattr(calibrating, "speed", lambda *_: 1000.0)  # what the scenario was written for: rates are as declared
    yield
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def spread(server: FakeOpenAi, arrivals: str) -> Run:
    target = Server.objects.create(name="counting", kind=ServerKind.OPENAI, base_url=server.url)
    wish: dict[str, Any] = {"policy_a": {}, "policy_b": {}, "repetitions": 1, "scale": None, "share": None, "by": None, "seed": 7}
    run = experiments.start_run(scenario="counted", text=TEXT.replace("ARRIVALS", arrivals), server=target, shards=2, **wish)
    assert steps.conduct(run.pk, "test pid 1") is True
    run.refresh_from_db()
    assert (run.state, run.error) == (RunState.FINISHED, "")
    return run


def planned(run: Run, label: str) -> tuple[Plan, dict[bytes, int]]:
    """What a block was to send, and the number of each request by its body: its text is drawn from the seed and its place."""
    sender = Sender(run, Watch(run.pk, ""), ClientClock(), [])
    sender.speak(Manner.of_json(run.conditions["speaks"]))
    plan = sender.plan(1, label, Scaling(1.0, run.conditions["fitted"]["times"]))
    return plan, {sender.dialect.body(each, {}): each.number for each in plan.requests}


def came(server: FakeOpenAi, bodies: dict[bytes, int]) -> list[tuple[int, Asked]]:
    found = {json.dumps(json.loads(body), sort_keys=True): number for body, number in bodies.items()}
    asked = [(found.get(json.dumps(each.body, sort_keys=True)), each) for each in server.asked]
    return [(number, each) for number, each in asked if number is not None]


def test_two_shards_carry_twice_what_one_can_and_no_request_comes_twice(
    counting: FakeOpenAi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two connections and a tenth of a second an answer a shard carries 20 requests a second, so 36 take both of them."""
    monkeypatch.setattr(sending, "Wire", partial(Wire, most=MOST))
    counting.gap_s = ANSWER_S / 2
    run = spread(counting, f"{{kind: constant, rate: {RATE}, for_s: {SECONDS}}}")
    count = run.conditions["planned"]["requests"]
    assert sorted(run.conditions["planned"]["by_shard"]) == [count // 2, count - count // 2]
    assert run.conditions["fitted"]["times"] == 1.0
    for arm in "AB":
        plan, bodies = planned(run, f"1{arm}")
        arrived = came(counting, bodies)
        assert sorted(number for number, _ in arrived) == list(range(count))  # each once, none missing
        whose = owners(plan, 2)
        ports = [{each.port for number, each in arrived if whose[number] == shard} for shard in (0, 1)]
        assert not ports[0] & ports[1]
        assert all(len(mine) <= MOST for mine in ports)
        rates = [rate_of([each.at for number, each in arrived if whose[number] == shard]) for shard in (0, 1)]
        whole = rate_of([each.at for _, each in arrived])
        assert whole == pytest.approx(RATE, rel=0.1)
        for mine in rates:
            assert mine == pytest.approx(RATE / 2, rel=0.1)
    samples = run.samples.filter(pair=1)
    assert Counter(samples.values_list("outcome", flat=True)) == {"ok": 2 * count}
    delays = [sample.sent_at - sample.scheduled_at for sample in samples if sample.scheduled_at is not None]
    assert len(delays) == 2 * count
    assert median(delays) < 0.02  # one shard alone would be late by half a second by then


def rate_of(moments: list[float]) -> float:
    return (len(moments) - 1) / (max(moments) - min(moments))


def test_the_stages_of_a_closed_loop_have_their_users_over_all_shards(counting: FakeOpenAi) -> None:
    """At each moment as many requests are under way as the stage says, never of two stages at once; both shards have a part."""
    counting.gap_s = 0.02
    levels = [(1, 4), (4, 16), (3, 9)]
    stages = ", ".join(f"{{concurrency: {users}, requests: {count}}}" for users, count in levels)
    run = spread(counting, f"{{kind: closed, stages: [{stages}]}}")
    by_shard = run.conditions["planned"]["by_shard"]
    assert sum(by_shard) == 29
    assert min(by_shard) >= 10
    rows = list(run.samples.filter(pair=1, arm="A").exclude(role="warm").order_by("sent_at"))
    assert [sum(row.stage == number for row in rows) for number in range(3)] == [count for _, count in levels]
    for number, (users, _) in enumerate(levels):
        mine = [row for row in rows if row.stage == number]
        steps = sorted([(row.sent_at, 1) for row in mine] + [(row.done_at or 0.0, -1) for row in mine])
        under_way = most = 0
        for _, step in steps:
            under_way += step
            most = max(most, under_way)
        assert most == users
        if number:
            before = max(row.done_at or 0.0 for row in rows if row.stage == number - 1)
            assert min(row.sent_at for row in mine) > before
    assert not Ended.objects.exists()
    plan, bodies = planned(run, "1A")
    assert sorted(number for number, _ in came(counting, bodies)) == [each.number for each in plan.requests]
