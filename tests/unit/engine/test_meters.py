"""What is counted and logged while the server works."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace

import pytest

from engine.http.metrics_text import histogram_text
from engine.meters import MOST_FRESH, Histogram, jain, slowdown
from engine.options import parse_options
from engine.scheduler.plan import Finished, FinishReason
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served


def test_a_histogram_is_cumulative_text() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0, -1.0):
        histogram.add(seconds)
    assert histogram_text("x_seconds", "Of x.", histogram).splitlines() == [
        "# HELP x_seconds Of x.",
        "# TYPE x_seconds histogram",
        'x_seconds_bucket{le="0.1"} 3',
        'x_seconds_bucket{le="1.0"} 4',
        'x_seconds_bucket{le="+Inf"} 5',
        "x_seconds_sum 7.65",
        "x_seconds_count 5",
    ]


def test_a_histogram_that_nobody_reads_keeps_little() -> None:
    histogram = Histogram((0.1,))
    for _ in range(10 * MOST_FRESH):
        histogram.add(0.5)
    assert len(histogram._fresh) <= MOST_FRESH
    assert histogram.read() == ([0, 10 * MOST_FRESH], 5.0 * MOST_FRESH)


def test_jains_index() -> None:
    assert jain([5, 5, 5, 5]) == 1
    assert jain([8, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 1


async def metrics(engine: Served) -> dict[str, float]:
    text = (await engine.client.get("/metrics")).text
    assert all(re.fullmatch(r"# (HELP|TYPE) \S+ .+|\S+ \S+", line) for line in text.splitlines())
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


async def test_every_stage_of_a_task_is_counted_once() -> None:
    async with served("--phase", "barrier") as engine:
        answers = (await engine.post("/completion", {"prompt": [[300] * 9, [301] * 5], "n_predict": 4})).json()
        await engine.idle()
        found = await metrics(engine)
    for name in ("ttft", "queue_wait", "first_visit_wait", "hold"):
        assert found[f"slotboard_{name}_seconds_count"] == 2
    assert found["slotboard_itl_seconds_count"] == 6
    assert found["slotboard_iteration_seconds_count"] == found["llamacpp:n_decode_total"]
    served_tokens = {
        kind: [found[f'slotboard_slot_tokens_total{{slot="{slot}",kind="{kind}"}}'] for slot in (0, 1)]
        for kind in ("prompt", "generation")
    }
    assert sorted(served_tokens["prompt"]) == [5, 9]
    assert served_tokens["generation"] == [3, 3]
    assert found["slotboard_service_jain"] == pytest.approx((12 + 8) ** 2 / (2 * (12**2 + 8**2)))
    assert found["slotboard_cohorts_total"] >= 1
    assert sum(value for name, value in found.items() if name.startswith("slotboard_phase{")) == 1
    assert found["slotboard_slowdown_count"] == 2
    assert 0.5 <= found["slotboard_slowdown_jain"] <= 1
    assert len(answers) == 2


def test_slowdown_counts_what_a_task_waited_against_what_it_was_served() -> None:
    end = Finished(0, 1, FinishReason.LIMIT, submitted_at=10.0, assigned_at=11.0, first_visit_at=13.0, finished_at=26.0)
    end = replace(end, prompt_done_at=19.0, first_token_at=21.0, skipped_s=4.0, paused_s=1.0)
    assert slowdown(end) == 16 / (2 + 4)
    assert slowdown(replace(end, first_token_at=None)) is None
    assert slowdown(replace(end, prompt_done_at=13.0, skipped_s=0.0, first_token_at=26.0, paused_s=0.0)) is None


async def test_the_longest_gap_is_remembered() -> None:
    """A prompt of eight batches in physical order leaves out the one that came during the first of them."""
    flags = ("-b", "8", "-ub", "8", "--prefill-order", "physical")
    backend = FakeBackend(parse_options([*FLAGS, *flags], {}).backend_options)
    backend.open.clear()
    async with served(*flags, backend=backend) as engine:
        long = asyncio.create_task(engine.post("/completion", {"prompt": [300] * 64, "n_predict": 1, "id_slot": 0}))
        assert await asyncio.to_thread(backend.running.wait, 5)
        short = asyncio.create_task(engine.post("/completion", {"prompt": [301] * 5, "n_predict": 1, "id_slot": 1}))
        while engine.runner.view()["queue"]["depth"] == 0:
            await asyncio.sleep(0.001)
        backend.open.set()
        await asyncio.gather(long, short)
        await engine.idle()
        found = await metrics(engine)
    assert found["slotboard_service_gap_max_iterations"] == 7
    assert found["slotboard_service_gap_iterations"] == 0


async def test_one_line_for_each_cohort_and_policy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engine.scheduler")
    async with served("--phase", "barrier") as engine:
        await engine.post("/completion", {"prompt": [300] * 9, "n_predict": 2})
        for dry_run in ("true", "false"):
            body = {"expected_version": 1, "set": {"prefill_order": "rotating"}, "reason": "a try", "ttl_s": 0.05}
            assert (await engine.client.patch(f"/scheduler/policy?dry_run={dry_run}", json=body)).status_code == 200
        for _ in range(200):
            if engine.runner.meters.version == 3:
                break
            await engine.post("/completion", {"prompt": [300] * 9, "n_predict": 2})
    lines = [record.getMessage() for record in caplog.records]
    assert any(re.fullmatch(r"Cohort 1 began at iteration 1, first prompts from slots \d", line) for line in lines)
    policies = [line for line in lines if line.startswith("Policy")]
    assert len(policies) == 2
    assert "prefill_order=rotating" in policies[0]
    assert policies[0].endswith("because: a try")
    assert "prefill_order=physical" in policies[1]
