"""Sending a load, or a shard's part of it: from an order to records in the database. For a run's own worker and its shards."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop
from django.conf import settings

from scheduler_api.connecting import tls
from scheduler_api.targets import allowed_targets
from workers import target
from workers.analysis.load import Limits
from workers.conducting import guard
from workers.errors import LeaseLost, RunFailed, RunStopped
from workers.handing import Handing
from workers.lease import Watch
from workers.load import search, shards
from workers.load.clock import ClientClock
from workers.load.dialects import Dialect, Native
from workers.load.edges import counted
from workers.load.histogram import Histogram
from workers.load.http import Wire
from workers.load.openai import Manner, OpenAi
from workers.load.plan import make_plan, with_sizes
from workers.load.planned import Plan, Planned, Scaling
from workers.load.progress import Progress
from workers.load.prompts import SAMPLE_TEXT, ordinary_pool
from workers.load.reading import Outcome
from workers.load.runner import Load, Record, Runner
from workers.load.tally import Tally, kept_every, times_of
from workers.models import Block, Run
from workers.records import Keeper
from workers.scenarios.library import FILES, files_of
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario
from workers.survey import Survey, survey

type Json = dict[str, Any]

MOST_SEED = 1 << 48
FLUSH_MOST = 50  # records written down at a time while a load runs: a few milliseconds
SWITCH_S = 0.0005  # how long another thread may hold up the generator's loop; Python's own 5 ms would show in the delays
FINE = (Outcome.OK, Outcome.CANCELLED, Outcome.SKIPPED)


def scenario_of(run: Run) -> LoadScenario:
    return read(run.scenario_text, f"{run.scenario}.yaml")


def texts_of(scenario: LoadScenario) -> dict[str, str]:
    """The files that it names: those of the product, then the operator's own. Raises ScenarioError."""
    return files_of(scenario, (FILES, settings.VAR_DIR / "scenario-files"))


@dataclass(frozen=True, slots=True)
class Order:
    """What to send next, the same for all shards. `clock_offset_s`, `clock_error_s`: the reference clock beside the run's."""

    block: int
    draws: int
    label: str
    tokens: float
    time: float
    limit_s: float
    manner: Json | None = None  # of an OpenAI-compatible server
    rate: float | None = None  # of a search's try
    stage: int = 0
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0

    def as_json(self) -> Json:
        return asdict(self)

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.tokens, self.time)


@dataclass(slots=True)
class Report:
    """What became of an order: of one shard, or of all once merged. `behind`: dispatch delays, in seconds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    behind: Histogram = field(default_factory=Histogram)
    tally: Tally = field(default_factory=Tally)

    def take(self, record: Record) -> None:
        outcome = record.answer.outcome
        self.outcomes[outcome] += 1
        if outcome not in FINE and not self.first_error:
            self.first_error = record.answer.error
        if (delay := record.dispatch_s) is not None:
            self.behind.add(max(0.0, delay))

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        return self.requests - sum(self.outcomes[outcome] for outcome in FINE)

    def merge(self, other: Report) -> None:
        self.outcomes += other.outcomes
        self.first_error = self.first_error or other.first_error
        self.behind.merge(other.behind)
        self.tally.merge(other.tally)

    def as_json(self) -> Json:
        counts = {"outcomes": dict(self.outcomes), "first_error": self.first_error}
        return {**counts, "behind": self.behind.as_json(), "tally": self.tally.as_json()}

    @classmethod
    def of_json(cls, given: Json) -> Report:
        behind, tally = Histogram.of_json(given["behind"]), Tally.of_json(given["tally"])
        return cls(Counter(given["outcomes"]), given["first_error"], behind, tally)


class Sender:
    """A run's scenario, as it is said to its server from this process."""

    loop_factory = staticmethod(uvloop.new_event_loop)

    def __init__(self, run: Run, watch: Watch, clock: ClientClock, later: list[Callable[[], None]]) -> None:
        """Looks at the server and its tokenizer. `later` is given what is to be done once the run is told to be over.

        Raises ScenarioError, RunFailed, ServerUnreachable.
        """
        self.run, self.watch, self.clock, self.later = run, watch, clock, later
        self.scenario = scenario_of(run)
        self.files = texts_of(self.scenario)
        self.survey: Survey = survey(run.server, adapters=self.scenario.adapters_needed > 0)
        self.sizes: list[int] | None = None
        self.dialect, self.sizes = self._dialect()

    def _dialect(self) -> tuple[Dialect, list[int]]:
        """How requests are said here, and how many tokens the server makes of each of the scenario's texts."""
        plan = self.plan(0, "", Scaling())
        if self.survey.model:
            return OpenAi(self.run.seed, self.survey.model, plan.texts), [len(text.split()) for text in plan.texts]
        texts = [target.tokenize(self.run.server, text) for text in plan.texts]
        pool = ordinary_pool(target.tokenize(self.run.server, SAMPLE_TEXT))
        return Native(self.run.seed, pool, texts), [len(text) for text in texts]

    def speak(self, manner: Manner) -> None:
        """From now on so, to an OpenAI-compatible server."""
        assert isinstance(self.dialect, OpenAi)
        self.dialect.manner = manner

    def plan(self, draws: int, label: str, scaling: Scaling, rate: float | None = None, stage: int = 0) -> Plan:
        """The whole load of a block, or of a search's try at `rate`: same run, same arguments, same load."""
        scenario = self.scenario if rate is None else search.at_rate(self.scenario, rate)
        plan = make_plan(scenario, (self.run.seed + draws) % MOST_SEED, scaling, self.files, label)
        plan = plan if rate is None else search.staged(plan, stage)
        return with_sizes(plan, self.sizes) if plan.texts and self.sizes is not None else plan

    def plan_of(self, order: Order) -> Plan:
        return self.plan(order.draws, order.label, order.scaling, order.rate, order.stage)

    def guard(self, work: Any) -> Any:
        return guard(self.watch, work, self.loop_factory)

    def wire(self) -> Wire:
        where = target.address(self.run.server)
        return Wire(where.base_url, where.api_key, tls=tls, allow=allowed_targets())

    def send(self, plan: Plan, limit_s: float) -> Load:
        """A small load that is none of the result: the calibration's."""

        async def send() -> Load:
            async with self.wire() as wire:
                return await Runner(wire, self.dialect, self.clock, silence_s=limit_s).run(plan)

        load: Load = self.guard(send())
        return load

    def warm(self, plan: Plan, limit_s: float) -> list[Record]:
        """The plan's warming requests, one after the other. Raises RunFailed when one of them is not answered."""

        async def warm() -> list[Record]:
            async with self.wire() as wire:
                return await Runner(wire, self.dialect, self.clock, silence_s=limit_s).warm(plan)

        records: list[Record] = self.guard(warm()) if plan.warming else []
        if failed := [record for record in records if record.answer.outcome is not Outcome.OK]:
            raise RunFailed(f"Warming failed. {failed[0].answer.error}")
        return records


class Prepared:
    """One shard's part of an order, planned and encoded: all that is left is to send it.

    `shard` counts from 0; `shift_s` brings this process's times onto the clock of the run's worker.
    """

    def __init__(self, sender: Sender, order: Order, shard: int, count: int, shift_s: float = 0.0) -> None:
        if order.manner is not None:
            sender.speak(Manner.of_json(order.manner))
        whole = sender.plan_of(order)
        self._sender, self._order = sender, order
        self._counted = counted(whole, sender.scenario, order.scaling)
        self._every = kept_every(len(whole.requests))
        self._limits = {name: Limits(**dict(slo)) for name, slo in whole.slos.items()}
        self._share = shards.share(whole, shard, count)
        self.plan = self._share.plan
        self.report = Report()
        self.progress = Progress(len(self.plan.requests))
        self._keeper = Keeper(Block.objects.get(pk=order.block), self._counted, every=self._every, shift_s=shift_s)
        self._shift_s = shift_s
        self._handing: Handing | None = None
        self._wire = sender.wire()
        self._runner = Runner(
            self._wire,
            sender.dialect,
            sender.clock,
            silence_s=order.limit_s,
            on_record=self._ended,
            on_sent=self.progress.sent,
            on_first=self.progress.first_token,
            keep=False,
        )
        self._runner.prepare(self.plan, sender.watch.check)

    def go(self, start_at: float | None, live: Callable[[Json], None]) -> Report:
        """Sends it from `start_at`, on this process's clock (None: at once), and gives `live` its progress meanwhile.

        Every record is in the database when it returns, also when it ends early by raising what the watch found. After a stop
        those that are not written down yet are left to `Sender.later`: there may be thousands, and somebody waits for the stop.
        """
        tick = self._ticker(live)
        try:
            with self._sender.watch.ticking(tick), _quick_switches():
                self._sender.guard(self._send(start_at))
        except LeaseLost:
            raise
        except RunStopped:
            self._sender.later.append(self._keeper.flush)
            raise
        except BaseException:
            self._keeper.flush()
            raise
        self._keeper.flush()
        with suppress(LeaseLost):
            live(self.progress.snapshot(self._sender.clock.now()))
        return self.report

    def _ticker(self, live: Callable[[Json], None]) -> Callable[[], None]:
        def tick() -> None:
            live(self.progress.snapshot(self._sender.clock.now()))
            self._keeper.flush(FLUSH_MOST)

        return tick

    async def _send(self, start_at: float | None) -> None:
        async with self._wire:
            if not (self._share.awaited or self._share.told):
                await self._runner.run(self.plan, start_at=start_at)
                return
            loop = asyncio.get_running_loop()

            def release(number: int) -> None:
                loop.call_soon_threadsafe(self._runner.release, number)

            with Handing(self._order.block, self._order.stage, self._share.awaited, release) as self._handing:
                await self._runner.run(self.plan, start_at=start_at)

    def _ended(self, record: Record) -> None:
        request: Planned = record.request
        self.report.take(record)
        self.progress.ended(record)
        self._keeper.take(record)
        if self._handing is not None and request.number in self._share.told and record.answer.outcome is not Outcome.STOPPED:
            self._handing.tell(request.number)
        if self._every > 1 and request.number in self._counted:
            self.report.tally.add(request, times_of(record, self._shift_s), self._limits.get(request.stream))


@contextmanager
def _quick_switches() -> Any:
    """The thread that writes records down gives the interpreter back to the loop soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
