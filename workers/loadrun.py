"""What a run of a scenario made of streams does, step by step.

1. Look at the server and say what it cannot do of what is asked.
2. Calibrate: one prompt alone gives the server's speed, and with it the scale and the stretch of all times.
3. Pairs of blocks, AB BA AB ...: switch the policy, warm what the scenario wants warm, send the planned load. Both blocks of a
   pair get the same arrivals and sizes, on fresh text; each request's record is kept.
4. Put back the policy found, whatever happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler_api.exceptions import SchedulerApiError
from workers import calibrating, handing, lease, recording, refclock, speaking, target
from workers.analysis.iterations import foreign_policies, shortened
from workers.analysis.load import behind_sentence
from workers.analysis.order import Step
from workers.calibrating import PROBE_TOKENS
from workers.conducting import Conductor
from workers.errors import RunFailed
from workers.load import search
from workers.load.dialects import lacks
from workers.load.openai import Manner, OpenAi
from workers.load.planned import Scaling
from workers.load.progress import merged
from workers.load.reading import Outcome
from workers.load.shards import sizes
from workers.load.tally import RAW_MOST, kept_every
from workers.models import Block
from workers.planning import auto_scale
from workers.presence import Presence
from workers.records import add_records, request_rows
from workers.searching import Searching
from workers.sending import MOST_SEED, Order, Prepared, Report, Sender, scenario_of, texts_of
from workers.sharding import Crew

__all__ = ["MOST_SEED", "PROBE_TOKENS", "LoadRun", "scenario_of", "texts_of"]

SHORTEST_LIMIT_S = 60.0
MOST_LATE = 2  # tries of a search for which the generator may be too slow


class LoadRun(Conductor):
    crew: Crew | None = None
    manner: Manner | None = None  # of an OpenAI-compatible server

    def work(self) -> None:
        self.say(0, "Looking at the server")
        self.sender = Sender(self.run, self.watch, self.clock, self.later)
        self.scenario, self.survey = self.sender.scenario, self.sender.survey
        self.can = self.survey.can
        self._look()
        if self.run.shards > 1:
            self.crew = Crew(self.run, self.held, self.watch, self.clock)
            told = self.crew.call(self.note)
            self.keep_conditions({**self.run.conditions, "shards": told, "clock": refclock.NAME})
        self._calibrate()
        self.blocks()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        server = self.run.server
        self.is_engine = self.survey.policy is not None
        self.switches = self.is_engine and bool(self.run.policy_a or self.run.policy_b)
        self.clock_offset_s = target.clock_offset_s(server) if self.is_engine else 0.0
        self.presence = Presence(server, self.watch, self.note, told=self.is_engine)
        if self.survey.doubt:
            self.warn(self.survey.doubt)
        if self.survey.busy:
            slots = ", ".join(map(str, self.survey.busy))
            self.warn(f"At the start slots {slots} had other work, so times include it.")
        self.run.policy_before = self.survey.policy
        conditions = {**self.survey.conditions, "scenario": {"name": self.scenario.name, "version": self.scenario.version}}
        self.keep_conditions({**conditions, "clock_offset_s": self.clock_offset_s}, policy_before=self.survey.policy)

    def _calibrate(self) -> None:
        block = recording.open_block(self.run, recording.CALIBRATION, None)
        self.say(0, "Calibration: the server's speed")
        if isinstance(self.sender.dialect, OpenAi):
            self._learn_to_speak()
        self._fit(calibrating.speed(self.sender, block, self.limit_s))
        self.say(0, "Calibration: a request of each stream alone")
        alone = calibrating.alone(self.sender, block, self.scaling, self.limit_s)
        self.keep_conditions({**self.run.conditions, "alone": alone})
        recording.close_block(block, {"iterations": [], "left_out": 0, "requests": request_rows(block)}, [])

    def _learn_to_speak(self) -> None:
        found = self.manner = calibrating.manner(self.sender, self.limit_s)
        if not found.counted:
            self.warn("The server does not say how many tokens a prompt has, so prompts have a word for each token planned.")
        for text in speaking.losses(found):
            self.warn(text)
        self.can = replace(self.survey.can, token_ids=found.prompt == "ids")
        self.keep_conditions({**self.run.conditions, "speaks": found.as_json()})

    def _fit(self, speed: float) -> None:
        """Chooses the scale where the run leaves it open, and refuses what cannot run here."""
        scale = self._auto_scale(speed) if self.run.scale_auto else self.run.scale
        self.scaling = Scaling.fitted(scale, self.scenario.written_for, speed)
        plan = self.sender.plan(1, "1A", self.scaling)
        for lack in lacks(self.scenario, plan, self.can, arms_differ=self.run.policy_a != self.run.policy_b):
            if lack.fatal:
                raise RunFailed(lack.text)
            self.warn(lack.text)
        expected = max(plan.open_loop_s, 0.0) + (plan.prompt_tokens + 8.0 * plan.output_tokens) / speed
        self.limit_s = max(SHORTEST_LIMIT_S, 10 * expected)
        if (found := search.search_of(self.scenario)) is not None:
            expected *= 2 * (found[1].tries + MOST_LATE)  # above what the server carries, a try takes longer than its arrivals
        self.switcher.ttl_s = max(SHORTEST_LIMIT_S, 6 * expected)
        self.run.scale = scale
        fitted = {"speed": speed, "written_for": self.scenario.written_for, "scale": scale, "times": self.scaling.time}
        load: dict[str, Any] = {
            "requests": len(plan.requests),
            "prompt_tokens": plan.prompt_tokens,
            "output_tokens": plan.output_tokens,
        }
        if self.crew is not None:
            load["by_shard"] = sizes(plan, self.run.shards)
            if idle := load["by_shard"].count(0):
                self.warn(f"{idle} of {self.run.shards} shards have nothing to send: the load has too few independent chains.")
        if (every := kept_every(len(plan.requests))) > 1:
            load["kept_every"] = every
            self.warn(
                f"A block has more than {RAW_MOST:,} requests, so one of {every} is kept with its times; measures are from "
                "histograms of all of them, with percentiles within half a percent."
            )
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
            return self.sender.plan(1, "1A", Scaling(scale)).context_needed

        return auto_scale(speed, self.scenario.written_for, self.survey.can.n_ctx, needed)

    def block(self, step: Step, reason: str) -> None:
        """A server that restarts within it costs the block, not the run."""
        self.open: Block | None = None
        try:
            self._block(step, reason)
        except (RunFailed, SchedulerApiError):
            if not self._restarted(step):
                raise
        else:
            self._restarted(step)

    def _block(self, step: Step, reason: str) -> None:
        version = self.switcher.to(step.arm, reason) if self.switches else (self.survey.policy or {}).get("version")
        block = self.open = recording.open_block(self.run, step, version)
        warm = self.sender.warm(self.sender.plan(step.draws, step.label, self.scaling), self.limit_s)
        add_records(block, warm, frozenset(), role="warm")
        mark = self.mark() if self.is_engine else 0
        started_at = self.clock.now()
        if search.search_of(self.scenario) is None:
            report = self._send(self._order(block, step))
        else:
            report, block.search = self._search(block, step)
        iterations = self._iterations(step.where, mark, step.index, version)
        self._judge(step.where, report)
        if report.tally.parts:
            block.tally = report.tally.as_json()
        block.save(update_fields=["tally", "search"])
        timeline = {**shortened(iterations, self.clock_offset_s), "requests": request_rows(block), "started_at": started_at}
        recording.close_block(block, timeline, [])

    # -- parts of a step ----------------------------------------------------------------------------------------------

    def _order(self, block: Block, step: Step, rate: float | None = None, stage: int = 0) -> Order:
        return Order(
            block=block.pk,
            draws=step.draws,
            label=step.label if rate is None else f"{step.label}:{stage}",
            tokens=self.scaling.tokens,
            time=self.scaling.time,
            limit_s=self.limit_s,
            manner=None if self.manner is None else self.manner.as_json(),
            rate=rate,
            stage=stage,
            clock_offset_s=self.crew.offset.seconds if self.crew else 0.0,
            clock_error_s=self.crew.offset.error if self.crew else 0.0,
        )

    def _send(self, order: Order) -> Report:
        """Sends it from all shards, to the end."""
        if self.crew is None:
            return Prepared(self.sender, order, 0, 1).go(None, self._live)
        self.crew.give(order)
        prepared = Prepared(self.sender, order, 0, self.run.shards)
        report = prepared.go(self.crew.start(), self._live)
        for other in self.crew.gather():
            report.merge(other)
        handing.forget(order.block)
        self._live(prepared.progress.snapshot(self.clock.now()))
        return report

    def _live(self, own: dict[str, Any]) -> None:
        """Writes down how far all shards are. Raises LeaseLost."""
        whole = merged([own, *(self.crew.live() if self.crew else ())])
        del whole["ttft"]  # the histogram is for adding up alone
        lease.write(self.run.pk, self.held, live=whole)

    def _search(self, block: Block, step: Step) -> tuple[Report, dict[str, Any]]:
        """A try for which the generator was too slow says nothing of the server, so it is sent again; two end it."""
        searching, whole, late = Searching(self.scenario, self.scaling), Report(), 0
        while (rate := searching.next_rate()) is not None and late < MOST_LATE:
            self.watch.check()
            stage, told = searching.count + late, f"{rate / self.scaling.time:.3g} requests a second"
            self.say(step.index, f"{step.where}: try {stage + 1}, {told}")
            report = self._send(self._order(block, step, rate, stage))
            whole.merge(report)
            if (report.behind.percentile(0.99) or 0.0) <= searching.behind_s:
                searching.take(rate, block, report, stage)
            else:
                late += 1
                self.warn(f"{step.where}: at {told} the generator was behind, which says nothing of the server.")
        return whole, {**searching.found(), "cut_short": late >= MOST_LATE}

    def _restarted(self, step: Step) -> bool:
        """Whether the server is another process than at the last look; its block is then left out of what is compared."""
        state = self.presence.restarted() if self.presence is not None else None
        if state is None:
            return False
        failed = requests = 0
        if self.open is not None:
            samples = self.open.samples.exclude(role="warm")
            failed, requests = samples.filter(ok=False).count(), samples.count()
        text = (
            f"{step.where}: the server restarted within this block ({failed} of {requests} requests failed), so the block is "
            "kept and not compared."
        )
        self.warn(text)
        if self.open is not None:
            self.open.interrupted = True
            self.open.save(update_fields=["interrupted"])
            timeline = self.open.timeline or {"iterations": [], "left_out": 0, "requests": request_rows(self.open)}
            recording.close_block(self.open, timeline, [text])
        told = {"block": step.index, "requests": requests, "failed": failed, "since": state["server"]["started_at"]}
        restarts = [*self.run.conditions.get("restarts", ()), told]
        self.keep_conditions({**self.run.conditions, "restarts": restarts})
        if self.switches:
            self.switcher.resume(state["policy"]["version"])
        return True

    def _iterations(self, where: str, mark: int, index: int, version: int | None) -> list[dict[str, Any]]:
        if version is None:
            return []
        iterations, gap = target.iterations_after(self.run.server, mark)
        if gap:
            self.warn(f"{where}: the server's memory of its batches was too short, so the timeline has a hole.")
        if others := foreign_policies(iterations, version):
            raise RunFailed(f"The policy was changed during block {index} (version {others[-1]} instead of {version}).")
        return iterations

    def _judge(self, where: str, report: Report) -> None:
        """Nothing answered ends the run; some failures and a generator that was behind are warned of."""
        if report.failed and not report.outcomes[Outcome.OK]:
            raise RunFailed(f"{where}: no request was answered. {report.first_error}")
        if report.failed:
            self.warn(f"{where}: {report.failed} of {report.requests} requests failed; the first: {report.first_error}")
        if text := _behind(report):
            self.warn(f"{where}: {text}")


def _behind(report: Report) -> str:
    late = report.behind.percentile(0.99)
    return "" if late is None else behind_sentence([late])
