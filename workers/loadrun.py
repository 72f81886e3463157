"""What a run of a scenario made of streams does, step by step.

1. Look at the server and say what it cannot do of what is asked.
2. Calibrate: one prompt alone gives the server's speed, and with it the scale and the stretch of all times.
3. Pairs of blocks, AB BA AB ...: switch the policy, warm what the scenario wants warm, send the planned load. Both blocks of a
   pair get the same arrivals and sizes, on fresh text; each request's record is kept.
4. Put back the policy found, whatever happened.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import uvloop
from django.conf import settings

from workers import recording, target
from workers.analysis.iterations import foreign_policies, shortened
from workers.analysis.load import behind_sentence
from workers.analysis.order import Step
from workers.conducting import Conductor
from workers.errors import RunFailed
from workers.load.client import tls
from workers.load.dialects import Chat, Dialect, Native, lacks
from workers.load.edges import counted
from workers.load.http import Wire
from workers.load.plan import make_plan, with_sizes
from workers.load.planned import Piece, Plan, Planned, Scaling
from workers.load.prompts import SAMPLE_TEXT, ordinary_pool
from workers.load.reading import Outcome
from workers.load.runner import Load, Record, Runner
from workers.models import Block, Run
from workers.planning import auto_scale
from workers.records import add_records, request_rows
from workers.scenarios.library import FILES, files_of
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario
from workers.survey import survey

PROBE_TOKENS = 1024  # of the prompt that measures the server's speed
COUNTED_WORDS = 32
SHORTEST_LIMIT_S = 60.0
MOST_SEED = 1 << 48


def scenario_of(run: Run) -> LoadScenario:
    return read(run.scenario_text, f"{run.scenario}.yaml")


def texts_of(scenario: LoadScenario) -> dict[str, str]:
    """The files that it names: those of the product, then the operator's own. Raises ScenarioError."""
    return files_of(scenario, (FILES, settings.VAR_DIR / "scenario-files"))


class LoadRun(Conductor):
    loop_factory = staticmethod(uvloop.new_event_loop)

    def work(self) -> None:
        self.say(0, "Looking at the server")
        self.scenario = scenario_of(self.run)
        self.files = texts_of(self.scenario)
        self._look()
        self._calibrate()
        self.blocks()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        server = self.run.server
        self.survey = survey(server, adapters=self.scenario.adapters_needed > 0)
        self.is_engine = self.survey.policy is not None
        self.switches = self.is_engine and bool(self.run.policy_a or self.run.policy_b)
        self.clock_offset_s = target.clock_offset_s(server) if self.is_engine else 0.0
        self.dialect, self.sizes = self._dialect()
        if self.survey.busy:
            slots = ", ".join(map(str, self.survey.busy))
            self.warn(f"At the start slots {slots} had other work, so times include it.")
        self.run.policy_before = self.survey.policy
        conditions = {**self.survey.conditions, "scenario": {"name": self.scenario.name, "version": self.scenario.version}}
        self.keep_conditions({**conditions, "clock_offset_s": self.clock_offset_s}, policy_before=self.survey.policy)

    def _dialect(self) -> tuple[Dialect, list[int]]:
        """How requests are said here, and how many tokens the server makes of each of the scenario's texts."""
        plan = self._plan(0, "", Scaling())
        if not self.survey.can.token_ids:
            return Chat(self.run.seed, self.survey.model, plan.texts), [len(text.split()) for text in plan.texts]
        texts = [target.tokenize(self.run.server, text) for text in plan.texts]
        pool = ordinary_pool(target.tokenize(self.run.server, SAMPLE_TEXT))
        return Native(self.run.seed, pool, texts), [len(text) for text in texts]

    def _plan(self, pair: int, label: str, scaling: Scaling) -> Plan:
        plan = make_plan(self.scenario, (self.run.seed + pair) % MOST_SEED, scaling, self.files, label)
        return with_sizes(plan, self.sizes) if plan.texts and hasattr(self, "sizes") else plan

    def _calibrate(self) -> None:
        """The speed of one prompt alone, at its second try: the first one may find a cold machine."""
        block = recording.open_block(self.run, recording.CALIBRATION, None)
        self.say(0, "Calibration: the server's speed")
        n_ctx = self.survey.can.n_ctx
        tokens = PROBE_TOKENS if n_ctx is None else max(16, min(PROBE_TOKENS, n_ctx // 2))
        if isinstance(self.dialect, Chat):
            self.dialect.tokens_a_word = self._tokens_a_word()
        load = self._send(Plan(_one_after_the_other(tokens), ()))
        add_records(block, load.records, frozenset())
        last = load.records[-1].answer
        if last.outcome is not Outcome.OK or last.done_at is None:
            raise RunFailed(f"The calibration failed. {last.error}")
        wall_s = last.done_at - last.sent_at
        computed = (last.n_prompt or tokens) - (last.n_cached or 0)
        prompt_ms = last.timings.get("prompt_ms")
        seconds = prompt_ms / 1000.0 if isinstance(prompt_ms, int | float) and prompt_ms > 0 else wall_s
        self._fit(max(1.0, computed / max(seconds, 1e-6)))
        recording.close_block(block, {"iterations": [], "left_out": 0, "requests": request_rows(load.records)}, [])

    def _tokens_a_word(self) -> float:
        """From two lengths, so that what a chat template puts around the text does not count."""
        few, many = (
            self._send(Plan(_one_after_the_other(n)[:1], ())).records[0].answer for n in (COUNTED_WORDS, 3 * COUNTED_WORDS)
        )
        if few.n_prompt is None or many.n_prompt is None or many.n_prompt <= few.n_prompt:
            self.warn("The server does not say how many tokens a prompt has, so prompts have a word for each token planned.")
            return 1.0
        return (many.n_prompt - few.n_prompt) / (2 * COUNTED_WORDS)

    def _fit(self, speed: float) -> None:
        """Chooses the scale where the run leaves it open, and refuses what cannot run here."""
        scale = self._auto_scale(speed) if self.run.scale_auto else self.run.scale
        self.scaling = Scaling.fitted(scale, self.scenario.written_for, speed)
        plan = self._plan(1, "1A", self.scaling)
        for lack in lacks(self.scenario, plan, self.survey.can, arms_differ=self.run.policy_a != self.run.policy_b):
            if lack.fatal:
                raise RunFailed(lack.text)
            self.warn(lack.text)
        expected = max(plan.open_loop_s, 0.0) + (plan.prompt_tokens + 8.0 * plan.output_tokens) / speed
        self.limit_s = max(SHORTEST_LIMIT_S, 10 * expected)
        self.switcher.ttl_s = max(SHORTEST_LIMIT_S, 6 * expected)
        self.run.scale = scale
        fitted = {"speed": speed, "written_for": self.scenario.written_for, "scale": scale, "times": self.scaling.time}
        load = {"requests": len(plan.requests), "prompt_tokens": plan.prompt_tokens, "output_tokens": plan.output_tokens}
        conditions = {
            **self.run.conditions,
            "fitted": fitted,
            "planned": load,
            "expected_block_s": expected,
            "ttl_s": self.switcher.ttl_s,
        }
        self.keep_conditions(conditions, scale=scale)

    def _auto_scale(self, speed: float) -> float:
        def needed(scale: float) -> int:
            return self._plan(1, "1A", Scaling(scale)).context_needed

        return auto_scale(speed, self.scenario.written_for, self.survey.can.n_ctx, needed)

    def block(self, step: Step, reason: str) -> None:
        version = self.switcher.to(step.arm, reason) if self.switches else (self.survey.policy or {}).get("version")
        block = recording.open_block(self.run, step, version)
        plan = self._plan(step.draws, step.label, self.scaling)
        self._warm(block, step.index, plan)
        mark = self.mark() if self.is_engine else 0
        load = self._send(plan)
        where = step.where
        iterations = self._iterations(where, mark, step.index, version)
        add_records(block, load.records, counted(plan, self.scenario, self.scaling))
        self._judge(where, load)
        timeline = {
            **shortened(iterations, self.clock_offset_s),
            "requests": request_rows(load.records),
            "started_at": load.started_at,
        }
        recording.close_block(block, timeline, [])

    # -- parts of a step ----------------------------------------------------------------------------------------------

    def _warm(self, block: Block, index: int, plan: Plan) -> None:
        async def warm() -> list[Record]:
            async with self._wire() as wire:
                return await self._runner(wire).warm(plan)

        if plan.warming:
            records = self.guard(warm())
            if failed := [record for record in records if record.answer.outcome is not Outcome.OK]:
                raise RunFailed(f"Warming before block {index} failed. {failed[0].answer.error}")
            add_records(block, records, frozenset(), role="warm")

    def _send(self, plan: Plan) -> Load:
        async def send() -> Load:
            async with self._wire() as wire:
                return await self._runner(wire).run(plan)

        load: Load = self.guard(send())
        return load

    def _wire(self) -> Wire:
        where = target.address(self.run.server)
        return Wire(where.base_url, where.api_key, tls=tls)

    def _runner(self, wire: Wire) -> Runner:
        return Runner(wire, self.dialect, self.clock, silence_s=self.limit_s)

    def _iterations(self, where: str, mark: int, index: int, version: int | None) -> list[dict[str, Any]]:
        if version is None:
            return []
        iterations, gap = target.iterations_after(self.run.server, mark)
        if gap:
            self.warn(f"{where}: the server's memory of its batches was too short, so the timeline has a hole.")
        if others := foreign_policies(iterations, version):
            raise RunFailed(f"The policy was changed during block {index} (version {others[-1]} instead of {version}).")
        return iterations

    def _judge(self, where: str, load: Load) -> None:
        """Nothing answered ends the run; some failures and a generator that was behind are warned of."""
        outcomes = Counter(record.answer.outcome for record in load.records)
        bad = [record for record in load.records if record.answer.outcome not in (Outcome.OK, Outcome.CANCELLED, Outcome.SKIPPED)]
        if bad and not outcomes[Outcome.OK]:
            raise RunFailed(f"{where}: no request was answered. {bad[0].answer.error}")
        if bad:
            self.warn(f"{where}: {len(bad)} of {len(load.records)} requests failed; the first: {bad[0].answer.error}")
        delays = [delay for record in load.records if (delay := record.dispatch_s) is not None]
        if text := behind_sentence(delays):
            self.warn(f"{where}: {text}")


def _one_after_the_other(tokens: int) -> tuple[Planned, ...]:
    """Two requests of fresh text, alone each."""
    return tuple(
        Planned(
            number=number,
            stream="calibration",
            at_s=None if number else 0.0,
            pieces=(Piece(f"calibration:{tokens}:{number}", tokens),),
            n_predict=1,
            place=number,
            after=(number - 1,) if number else (),
        )
        for number in range(2)
    )
