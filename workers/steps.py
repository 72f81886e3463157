"""What a run of warm-behind-cold does, step by step (`workers.loadrun` has those of all other scenarios).

1. Claim it; a second delivery of the same task finds it claimed and goes away.
2. Look at the server: slots, context, KV mode, the policy in force. Nothing is changed yet.
3. Calibrate: warm the short request's slot, send the short request alone, then the cold one alone.
4. Pairs of blocks, AB BA AB ...: switch the policy, see that the warm slot is still warm, send the cold request and, a share of
   its time later, the short one; keep samples and timeline at once.
5. Put back the policy found, whatever happened, and say how the run ended.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Any

from workers import lease, queueing, recording, runlog, target
from workers.analysis.iterations import foreign_policies, foreign_tokens, full_batch_s
from workers.analysis.order import Step
from workers.block import Prompts, Request, judge, send_both, send_one
from workers.checks import Setup, check_server
from workers.conducting import Conductor
from workers.errors import RunFailed
from workers.lease import Watch
from workers.load.client import Answer, Ask, make_client
from workers.load.prompts import SAMPLE_TEXT, ordinary_pool
from workers.loadrun import LoadRun
from workers.models import Block, Run
from workers.presence import Presence
from workers.scenarios import load

log = logging.getLogger(__name__)

SHORTEST_LIMIT_S = 60.0


def conduct(run_id: int, worker: str) -> bool:
    """The whole run; False when it was not there to be claimed."""
    held = lease.claim(run_id, worker)
    if held is None:
        log.info("Run %d is not queued, so this delivery does nothing", run_id)
        return False
    run = Run.objects.select_related("server", "created_by").get(pk=run_id)
    runlog.note(run_id, f"Taken by worker {worker}.")
    with Watch(run_id, held) as watch:
        (LoadRun if run.scenario_text else _WarmBehindCold)(run, held, watch).go()
    queueing.dispatch()
    return True


class _WarmBehindCold(Conductor):
    def work(self) -> None:
        self.say(0, "Looking at the server")
        self.setup = self._prepare()
        self._calibrate()
        self.blocks()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> Setup:
        server = self.run.server
        scenario = load(self.run.scenario)
        sizes = scenario.sizes(self.run.scale)
        self.prompts = Prompts(scenario, sizes, ordinary_pool(target.tokenize(server, SAMPLE_TEXT)), self.run.seed)
        setup = check_server(target.state(server), scenario, sizes)
        for text in setup.warnings:
            self.warn(text)
        self.clock_offset_s = target.clock_offset_s(server)
        self.presence = Presence(server, self.watch, self.note, told=True)
        lease.write(
            self.run.pk,
            self.held,
            policy_before=setup.policy,
            conditions={**setup.conditions, "clock_offset_s": self.clock_offset_s},
        )
        self.run.policy_before = setup.policy
        self.run.conditions = {**setup.conditions, "clock_offset_s": self.clock_offset_s}
        return setup

    def _calibrate(self) -> None:
        block = recording.open_block(self.run, recording.CALIBRATION, None)
        self.say(0, f"Calibration: warming slot {self.prompts.scenario.short.slot} with {self.prompts.sizes.depth:,} tokens")
        warm, _ = self._alone(block, self.prompts.warm())
        self.limit_s = max(self.limit_s, 10 * _wall(warm))
        self.say(0, "Calibration: the short request alone")
        short, _ = self._alone(block, self.prompts.short("calibration"))
        self.say(0, "Calibration: the cold request alone")
        cold, iterations = self._alone(block, self.prompts.cold("calibration"))
        warm_s, short_s, self.cold_s = (_wall(request) for request in (warm, short, cold))
        batches = -(-self.prompts.sizes.cold // self.setup.n_batch)
        self.batch_s = full_batch_s(iterations, self.setup.n_batch) or self.cold_s / batches
        expected = self.cold_s + short_s + self.batch_s
        self.limit_s = max(SHORTEST_LIMIT_S, 10 * expected + 4 * warm_s)
        self.switcher.ttl_s = max(SHORTEST_LIMIT_S, 6 * expected + 4 * warm_s)
        alone = {"warm_s": warm_s, "short_alone_s": short_s, "cold_alone_s": self.cold_s, "batch_s": self.batch_s}
        self.run.conditions = {**self.run.conditions, **alone, "expected_block_s": expected, "ttl_s": self.switcher.ttl_s}
        lease.write(self.run.pk, self.held, conditions=self.run.conditions)
        recording.close_block(block, recording.timeline(iterations, [cold], self.clock_offset_s), [])

    def block(self, step: Step, reason: str) -> None:
        version = self.switcher.to(step.arm, reason)
        block = recording.open_block(self.run, step, version)
        self._keep_warm(block, step.index)
        mark = self.mark()
        offset_s = self._offset(step.draws)
        cold, short = self._both(step.label, offset_s)
        iterations, gap = target.iterations_after(self.run.server, mark)
        touched = self._foreign(step.where, iterations, [cold, short])
        if gap:
            self.warn(f"{step.where}: the server's memory of its batches was too short, so the timeline has a hole.")
        if others := foreign_policies(iterations, version):
            raise RunFailed(f"The policy was changed during block {step.index} (version {others[-1]} instead of {version}).")
        for request in (cold, short):
            recording.add_sample(block, request, offset_s if request.ask.role == "short" else 0.0)
            if request.answer.error:
                raise RunFailed(f"The {request.ask.role} request of block {step.index} failed. {request.answer.error}")
            if request.fault:
                self.warn(f"{step.where}: its pair is left out. {request.fault}")
        recording.close_block(block, recording.timeline(iterations, [cold, short], self.clock_offset_s), touched)

    # -- parts of a step ----------------------------------------------------------------------------------------------

    def _offset(self, pair: int) -> float:
        """The same for both blocks of a pair; spread over one batch so that no phase of the batches is favoured."""
        return self.run.share * self.cold_s + Random(f"{self.run.seed}:{pair}:offset").uniform(0.0, self.batch_s)

    def _keep_warm(self, block: Block, index: int) -> None:
        """Asks for the warm part alone: next to no work while it is cached, the warming itself when it is not."""
        request = self._one(self.prompts.warm())
        if request.answer.error:
            raise RunFailed(f"Warming slot {request.ask.slot} before block {index} failed. {request.answer.error}")
        if request.times.n_cached is not None and request.times.n_cached not in self.prompts.expected_cached("warm"):
            recording.add_sample(block, request, 0.0)
            lost = self.prompts.sizes.depth - request.times.n_cached
            self.warn(f"Block {index}: slot {request.ask.slot} had lost {lost:,} of its warm tokens and was warmed again.")

    def _alone(self, block: Block, ask: Ask) -> tuple[Request, list[dict[str, Any]]]:
        mark = self.mark()
        request = self._one(ask)
        recording.add_sample(block, request, 0.0)
        if request.answer.error:
            raise RunFailed(f"The {ask.role} request of the calibration failed. {request.answer.error}")
        if request.fault and ask.role == "short":
            self.warn(f"Calibration: {request.fault} This server may not keep a slot's cache while others work.")
        return request, target.iterations_after(self.run.server, mark)[0]

    def _one(self, ask: Ask) -> Request:
        async def send() -> Answer:
            async with self._client() as client:
                return await send_one(client, self.clock, ask)

        return judge(self.prompts, ask, self.guard(send()))

    def _both(self, label: str, offset_s: float) -> tuple[Request, Request]:
        cold, short = self.prompts.cold(label), self.prompts.short(label)

        async def send() -> tuple[Answer, Answer]:
            async with self._client() as client:
                return await send_both(client, self.clock, cold, short, offset_s)

        answers = self.guard(send())
        return judge(self.prompts, cold, answers[0]), judge(self.prompts, short, answers[1])

    def _client(self) -> Any:
        where = target.address(self.run.server)
        return make_client(where.base_url, where.api_key, limit_s=self.limit_s)

    def _foreign(self, where: str, iterations: list[dict[str, Any]], requests: list[Request]) -> list[str]:
        expected = {request.ask.slot: request.ask.n_prompt - (request.times.n_cached or 0) for request in requests}
        found = foreign_tokens(iterations, expected)
        texts = [f"{where}: another request used {tokens:,} tokens in slot {slot}." for slot, tokens in found.items()]
        for text in texts:
            self.warn(text)
        return texts


def _wall(request: Request) -> float:
    if request.times.wall_s is None:
        raise RunFailed(f"The {request.ask.role} request of the calibration has no end time.")
    return request.times.wall_s
