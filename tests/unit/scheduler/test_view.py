"""The object that GET /scheduler serves, the sentences in it, and the iteration records."""

from __future__ import annotations

import json

from engine.scheduler.policy import FIELDS
from tests.unit.scheduler.harness import A, Bench


def test_the_view_is_strict_json_with_the_documented_keys() -> None:
    made = Bench.make(2, policy={"phase": "barrier"})
    made.submit(0, 12, client="long-doc", group=A)
    made.step()
    view = json.loads(json.dumps(made.view(), allow_nan=False))
    assert list(view) == [
        "t",
        "iteration",
        "policy",
        "kv",
        "phase",
        "cursor",
        "anchor",
        "queue",
        "totals",
        "slots",
        "capabilities",
    ]
    assert view["phase"] == {"name": "pp", "sealed": False, "cohort": {"id": 1, "members": [0], "completed": [], "age_s": 0.0}}
    assert view["kv"] == {"mode": "split", "resolved_from": "flag", "used": 8, "size": 8192}
    assert view["slots"][0] == {
        "id": 0,
        "state": "prompt",
        "since": 1.0,
        "task": 101,
        "client": "long-doc",
        "group": "completion lora 0:1",
        "n_ctx": 4096,
        "n_prompt": 12,
        "n_cached": 0,
        "n_processed": 8,
        "n_generated": 0,
        "n_predict": 1,
        "n_tokens": 8,
        "n_drafted": 0,
        "n_accepted": 0,
        "submitted_at": 0.0,
        "first_visit_at": 1.0,
        "prompt_done_at": None,
        "first_token_at": None,
        "member": True,
        "waiting_for": "",
        "last_service_iteration": 1,
    }
    assert view["slots"][1]["task"] is None
    fields = view["capabilities"]["policy"]
    assert list(fields) == list(FIELDS)
    share, window = fields["decode_share"], fields["barrier_join_window_ms"]
    assert (share["type"], share["minimum"], share["maximum"], share["nullable"]) == ("number", 0.01, 0.99, True)
    assert (window["type"], window["default"], window["nullable"]) == ("integer", 1000, False)
    assert fields["prefill_chunk"]["maximum"] == 8
    assert all({"default", "meaning", "takes_effect"} <= set(field) for field in fields.values())


def test_states_follow_a_task_through_its_slot() -> None:
    made = Bench.make()
    made.submit(0, 8)
    made.submit(1, 9, n_predict=2)
    assert (made.slot(1)["state"], made.slot(1)["waiting_for"]) == ("waiting", "not in a batch yet, the next one decides")
    made.step()
    assert (made.slot(1)["state"], made.slot(1)["waiting_for"]) == ("waiting", "batch full, slot 0 took 8 of 8")
    assert made.slot(1)["since"] == 0.0
    made.step()
    assert (made.slot(1)["state"], made.slot(1)["waiting_for"], made.slot(1)["since"]) == ("prompt", "", 2.0)
    made.step()
    assert (made.slot(1)["state"], made.slot(1)["since"]) == ("generating", 3.0)
    made.step()
    assert (made.slot(1)["state"], made.slot(1)["n_tokens"]) == ("idle", 10)


def test_a_slot_that_is_passed_over_waits_again() -> None:
    made = Bench.make(policy={"prefill_order": "rotating"})
    made.submit(0, 20)
    made.submit(1, 20)
    made.step()
    made.step()
    assert made.slot(0)["state"] == "waiting"
    assert made.slot(0)["waiting_for"] == "batch full, slot 1 took 8 of 8"
    assert made.slot(0)["last_service_iteration"] == 1


def test_a_record_says_what_was_in_force_when_the_batch_was_built() -> None:
    made = Bench.make(3, policy={"phase": "barrier"})
    made.submit(0, 20, n_predict=2)
    made.submit(1, 3, n_predict=2)
    made.step()
    made.submit(2, 3)
    made.step()
    record = made.scheduler.record(made.plans[-1], 2.0, 0.1, 5.0, 0.2)
    assert (record.iteration, record.t, record.plan_ms, record.run_ms, record.settle_ms) == (2, 2.0, 0.1, 5.0, 0.2)
    assert (record.prompt, record.generation) == (((0, 8),), ())
    assert [tuple(skip) for skip in record.skipped] == [(2, "queued: cohort 1 is sealed, joins 2")]
    assert (record.held, record.phase, record.cohort, record.sealed) == ((1,), "pp", 1, True)
    assert (record.anchor, record.cursor, record.policy_version, record.queue_depth, record.error) == (0, None, 1, 0, "")
    made.step()
    last = made.scheduler.record(made.plans[-1], 3.0, 0.1, 5.0, 0.2, "Compute error.")
    assert (last.phase, last.error) == ("pp", "Compute error.")
    made.step()
    decoded = made.scheduler.record(made.plans[-1], 4.0, 0.1, 5.0, 0.2)
    assert (decoded.phase, decoded.generation) == ("tg", ((0, 1), (1, 1)))


def test_a_batch_in_flight_counts_once_it_is_settled() -> None:
    made = Bench.make()
    made.submit(0, 8)
    plan = made.scheduler.plan(1.0)
    assert (plan.iteration, made.view()["iteration"]) == (1, 0)
    made.scheduler.settle(plan, made.model.run(plan), 1.0)
    assert made.view()["iteration"] == 1


def test_totals_add_up() -> None:
    made = Bench.make()
    base = list(range(10))
    made.submit(0, prompt=base, n_predict=3)
    made.run()
    made.submit(0, prompt=base, n_predict=1)
    made.run()
    assert made.view()["totals"] == {
        "prompt_tokens": 11,
        "cached_tokens": 9,
        "generated_tokens": 4,
        "iterations": 5,
        "tasks_finished": 2,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "drafts": 0,
        "prompt_s": 1.0,
        "generation_s": 2.0,
    }


def test_looking_does_not_disturb_a_batch_in_flight() -> None:
    rows, outputs = [], []
    for look in (False, True):
        made = Bench.make(policy={"phase": "barrier"})
        for slot in range(3):
            made.submit(slot, 5 + 7 * slot, n_predict=3)
        while made.scheduler.has_work:
            made.now += 1.0
            plan = made.scheduler.plan(made.now)
            before = plan._replace()
            if look:
                made.scheduler.view(made.now)
                made.scheduler.set_policy({}, expected_version=made.scheduler.policy(made.now).version, now=made.now)
            assert plan == before
            made.close(plan, made.scheduler.settle(plan, made.model.run(plan), made.now))
        rows.append(made.rows)
        outputs.append(made.outputs)
    assert rows[0] == rows[1]
    assert outputs[0] == outputs[1]
