"""Replays against a scheduler that really ran: its record is made by hand from the engine's own scheduler with known costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import EntryKind, Outcome
from engine.scheduler.policy import Policy, changed, table
from engine.scheduler.records import record_of
from engine.scheduler.task import Group, Task
from engine.scheduler.view import name_of
from scheduler_api.history import scene as scenes
from scheduler_api.history import stalls, whatif
from scheduler_api.history.costs import Costs, Load, depth_of, fit
from scheduler_api.history.scene import Scene
from tests.support.tasks import ended

COSTS = Costs(0.01, 0.001, 0.0, 0.002)


@dataclass
class FakeServer:
    """The engine's scheduler on a clock of its own, whose batches cost what COSTS says; keeps what an engine would tell."""

    policy: dict[str, Any] = field(default_factory=dict)
    n_slots: int = 3
    n_batch: int = 100
    now: float = 1000.0
    iterations: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    costs: Costs = COSTS
    groups: dict[int, Group] = field(default_factory=dict)  # by slot

    def __post_init__(self) -> None:
        config = SchedulerConfig(self.n_slots, 100_000, 300_000, self.n_batch, self.n_batch)
        self.scheduler = Scheduler(config, changed(Policy(), self.policy, table(self.n_batch)), self.now)
        self.asked: dict[int, Task] = {}

    def run(self, requests: list[tuple[float, int, int, int]]) -> FakeServer:
        """(at, slot, prompt tokens, tokens to generate), until all have ended."""
        waiting = sorted(requests)
        while waiting or self.scheduler.has_work:
            while waiting and 1000.0 + waiting[0][0] <= self.now:
                at, slot, n, predict = waiting.pop(0)
                number = len(self.asked) + 1
                task = Task(
                    number,
                    [number] * n,
                    n_predict=predict,
                    id_slot=slot,
                    client=f"c{slot}",
                    submitted_at=1000.0 + at,
                    group=self.groups.get(slot, Group()),
                )
                self.asked[number] = task
                self.scheduler.submit(task, self.now)
            if not self.scheduler.has_work:
                self.now = 1000.0 + waiting[0][0]
                continue
            self.step()
        return self

    def step(self) -> None:
        start = self.now
        plan = self.scheduler.plan(start)
        prompts = [entry for entry in plan.entries if entry.kind is EntryKind.PROMPT]
        prompt = sum(len(entry.tokens) for entry in prompts)
        depth = sum(depth_of(entry.pos, len(entry.tokens)) for entry in prompts)
        took = self.costs.of(Load(prompt, depth, plan.n_tokens - prompt)) if plan.entries else 0.001
        self.now += took
        tokens = {entry.slot: 0 for entry in plan.entries if entry.output}
        settlement = self.scheduler.settle(plan, Outcome(tokens), self.now)
        if plan.entries:
            record = record_of(plan, start, (0.0, took * 1000, 0.0), self.scheduler.queue_depth, "")
            times = {"i": record.iteration, "t": start, "plan_ms": 0.0, "run_ms": took * 1000, "settle_ms": 0.0}
            tokens_of = {"prompt": [list(pair) for pair in record.prompt], "gen": [list(pair) for pair in record.generation]}
            stand = {"held": list(record.held), "cursor": record.cursor, "phase": record.phase, "error": ""}
            self.iterations.append({**times, **tokens_of, **stand, "skipped": [list(skip) for skip in record.skipped]})
        for end in settlement.finished:
            told = {name: getattr(end, name) for name in ("submitted_at", "assigned_at", "first_visit_at", "prompt_done_at",
                    "first_token_at", "finished_at", "n_prompt", "n_cached", "n_generated", "slot")}  # fmt: skip
            asked = self.asked[end.task_id]
            told |= {"i": plan.iteration, "task": end.task_id, "client": asked.client, "group": name_of(asked.group)}
            self.tasks.append(ended(end.task_id, **told))

    def scene(self, slot: int, tasks: list[dict[str, Any]] | None = None) -> Scene:
        told = self.tasks if tasks is None else tasks
        found = max(stalls.stretches(self.iterations, told, slot, self.now), key=lambda stretch: stretch.seconds)
        policy = {**self.scheduler.policy(self.now).effective.as_dict()}
        info = {"n_slots": self.n_slots, "n_batch": self.n_batch, "n_ubatch": self.n_batch, "kv_mode": "split"}
        scene = scenes.scene(self.iterations, told, found, policy, info)
        assert isinstance(scene, Scene), scene
        return scene


COLD_AND_SHORT = [(0.0, 0, 2000, 2), (0.25, 1, 30, 2)]


def test_the_costs_of_the_recorded_batches_are_found() -> None:
    costs = FakeServer().run([*COLD_AND_SHORT, (0.3, 2, 500, 40)]).scene(1).costs
    assert costs.batch == pytest.approx(0.01, rel=0.02)
    assert costs.prompt_token == pytest.approx(0.001, rel=0.02)
    assert costs.decode_token == pytest.approx(0.002, rel=0.02)
    assert costs.depth == pytest.approx(0, abs=1e-6)


def test_costs_that_grow_with_depth_are_found() -> None:
    real = Costs(0.01, 0.001, 0.0005, 0.002)
    costs = FakeServer(costs=real).run([*COLD_AND_SHORT, (0.3, 2, 500, 40)]).scene(1).costs
    assert costs.prompt_token == pytest.approx(0.001, rel=0.05)
    assert costs.depth == pytest.approx(0.0005, rel=0.05)


def test_a_slow_batch_among_many_moves_no_cost() -> None:
    batches = [(Load(n, 0.0, 0), 0.01 + 0.001 * n) for n in range(10, 100)] + [(Load(50, 0.0, 0), 9.0)] * 5
    costs = fit(batches)
    assert costs is not None
    assert costs.batch == pytest.approx(0.01, rel=0.03)
    assert costs.prompt_token == pytest.approx(0.001, rel=0.03)


def test_batches_that_are_all_alike_give_a_cost_a_token() -> None:
    costs = fit([(Load(512, 0.0, 0), 0.5)] * 4)
    assert costs is not None
    assert costs == Costs(0.0, costs.prompt_token, 0.0, 0.0)
    assert costs.prompt_token == pytest.approx(0.5 / 512)
    assert fit([]) is None


def test_physical_order_is_replayed_as_it_was_and_rotating_serves_the_short_one_in_the_next_batch() -> None:
    scene = FakeServer().run(COLD_AND_SHORT).scene(1)
    found = {each["policy"]["prefill_order"]: each for each in whatif.elsewhere(scene)}
    # 20 batches of 0.11 s; the short one comes in the third, and waits for the end of the 20th
    assert scene.stretch.seconds == pytest.approx(20 * 0.11 - 0.25)
    assert found["physical"]["wait_s"] == pytest.approx(19 * 0.11 - 0.25 + 0.11, abs=0.002)
    assert found["physical"]["text"] == "The replay of the recorded order, physical, differs by less than 1 %."
    assert found["rotating"]["wait_s"] == pytest.approx(0.33 - 0.25, abs=0.002)  # the batch it came into, no more
    assert found["rotating"]["text"] == "Under rotating slot 1 would have waited about 80 ms instead of 1.95 s."
    assert whatif.elsewhere(scene)[0] == found["physical"]


def test_shortest_first_would_have_kept_a_long_prompt_waiting_for_short_ones() -> None:
    requests = [(0.0, 0, 400, 1), *((0.01 + n * 0.02, 1 + n % 2, 90, 1) for n in range(30))]
    scene = FakeServer({"prefill_order": "rotating"}).run(requests).scene(0)
    found = {each["policy"]["prefill_order"]: each["wait_s"] for each in whatif.elsewhere(scene)}
    assert found["rotating"] == pytest.approx(scene.stretch.seconds, rel=0.01)
    assert found["shortest_first"] > 2 * found["rotating"]


def test_who_generates_keeps_its_place_in_every_replayed_batch() -> None:
    requests = [(0.0, 2, 10, 200), (0.1, 0, 2000, 2), (0.35, 1, 30, 2)]
    scene = FakeServer().run(requests).scene(1)
    assert [(work.slot, work.left) for work in scene.present] == [(2, 0), (0, pytest.approx(1700, abs=101)), (1, 30)]
    [check] = [each for each in whatif.elsewhere(scene) if each["recorded"]]
    assert abs(check["error"]) < 0.02


def test_a_stall_that_still_lasts_is_replayed_from_what_is_known_of_it() -> None:
    server = FakeServer()
    server.run(COLD_AND_SHORT)
    cut = 1000.0 + 1.0
    server.iterations = [each for each in server.iterations if each["t"] + each["run_ms"] / 1000 <= cut]
    server.now = cut
    not_yet = {"i": None, "n": None, "finished_at": None, "prompt_done_at": None, "first_token_at": None, "n_generated": 0}
    running = [{**task, **not_yet, "n_predict": 2} for task in server.tasks]
    scene = server.scene(1, running)
    assert scene.stretch.open
    found = {each["policy"]["prefill_order"]: each["wait_s"] for each in whatif.elsewhere(scene)}
    assert found["physical"] == pytest.approx(20 * 0.11 - 0.25, rel=0.02)  # it will last that long, though 0.75 s are seen
    assert found["rotating"] < 0.1


def test_a_task_from_the_queue_takes_the_slot_that_is_free_first() -> None:
    requests = [(0.0, 0, 300, 1), (0.0, 1, 900, 1), (0.0, 2, 900, 1), (0.1, -1, 50, 1)]
    server = FakeServer().run(requests)
    queued = next(task for task in server.tasks if task["n"] == 4)
    assert queued["assigned_at"] - queued["submitted_at"] > 0.1
    scene = server.scene(2)
    assert [work.slot for work in scene.arrivals] == [-1]
    [check] = [each for each in whatif.elsewhere(scene) if each["recorded"]]
    assert abs(check["error"]) < 0.02


def test_unified_kv_would_have_changed_nothing() -> None:
    scene = FakeServer().run(COLD_AND_SHORT).scene(1)
    scene.info["kv_mode"] = "unified"
    texts = {each["policy"]["prefill_order"]: each["text"] for each in whatif.elsewhere(scene)}
    assert texts["rotating"] == "Unified KV keeps physical order, so rotating would have changed nothing."


def test_a_replay_that_is_off_says_so() -> None:
    server = FakeServer().run(COLD_AND_SHORT)
    server.iterations[12]["run_ms"] *= 20  # one batch hung, which no cost model knows
    shift = server.iterations[12]["run_ms"] * 0.95 / 1000
    for each in server.iterations[13:]:
        each["t"] += shift
    short = next(task for task in server.tasks if task["slot"] == 1)
    short["first_visit_at"], short["finished_at"] = short["first_visit_at"] + shift, short["finished_at"] + shift
    found = {each["policy"]["prefill_order"]: each for each in whatif.elsewhere(server.scene(1))}
    assert found["physical"]["error"] < -0.25
    assert "shorter" in found["physical"]["text"]
    assert found["rotating"]["text"].endswith("This is a rough guess: the replay of the recorded order is off.")


@pytest.mark.parametrize(("policy", "info"), [(None, {"n_batch": 100}), ({}, {"n_batch": None})])
def test_without_policy_or_batch_size_there_is_a_reason_and_no_replay(policy: Any, info: Any) -> None:
    server = FakeServer().run(COLD_AND_SHORT)
    stretch = server.scene(1).stretch
    told = scenes.scene(server.iterations, server.tasks, stretch, policy, info)
    assert told == "This server's policy or batch size is not known."


def test_a_barriers_wait_for_its_cohort_is_replayed_under_every_order() -> None:
    """The short prompt is done at once and held until the long one is: no order changes that, and each says so."""
    server = FakeServer({"phase": "barrier"}).run([(0.0, 0, 1500, 3), (0.0, 1, 20, 3)])
    scene = server.scene(1)
    assert scene.stretch.seconds > 1.0
    waits = {each["policy"]["prefill_order"]: each["wait_s"] for each in whatif.elsewhere(scene)}
    assert waits.keys() == set(whatif.ORDERS)
    assert all(wait == pytest.approx(scene.stretch.seconds, rel=0.1) for wait in waits.values())


def test_a_prompt_of_another_group_than_who_generates_waits_for_its_turn() -> None:
    """Physical order lets a group generate to its end; the orders that take turns let another in after eight batches."""
    server = FakeServer(groups={1: Group(lora=((0, 1.0),))}).run([(0.0, 2, 10, 200), (0.1, 1, 20, 3)])
    scene = server.scene(1)
    waits = {each["policy"]["prefill_order"]: each["wait_s"] for each in whatif.elsewhere(scene)}
    assert waits["physical"] == pytest.approx(scene.stretch.seconds, rel=0.02)
    assert waits["rotating"] == pytest.approx(8 * 0.012, abs=0.015)


requests = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.integers(-1, 2), st.integers(1, 600), st.integers(1, 30)), min_size=2, max_size=7
)


@settings(max_examples=60, deadline=None)
@given(requests, st.sampled_from(whatif.ORDERS))
def test_every_order_replays_every_recorded_stall_near_what_it_was(load: list[tuple[float, int, int, int]], order: str) -> None:
    """Without a barrier and with exact costs the replay of the recorded order is close: all it does not know is for how long a
    slot had been passed over before."""
    server = FakeServer({"prefill_order": order}).run(load)
    for slot in range(3):
        found = stalls.stretches(server.iterations, server.tasks, slot, server.now)
        if any(stretch.seconds > 0.05 for stretch in found):
            scene = server.scene(slot)
            wait = whatif.replayed(scene, order)
            assert wait is not None
            assert wait == pytest.approx(scene.stretch.seconds, rel=0.3, abs=0.25)
