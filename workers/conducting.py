"""The frame of every run: how it ends, what it says meanwhile, and how a stop reaches its requests."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from scheduler_api.exceptions import SchedulerApiError
from workers import lease, recording, runlog, target
from workers.analysis.order import Step, steps
from workers.errors import LeaseLost, RunFailed, RunStopped, ShardLost
from workers.lease import Watch
from workers.load.clock import ClientClock
from workers.load.prompts import PromptError
from workers.models import Run, RunState
from workers.presence import Presence
from workers.scenarios import ScenarioError
from workers.switching import Switcher

log = logging.getLogger(__name__)

type LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Conductor(ABC):
    """`work` is what a kind of run does; everything that can end it early comes out of it as an exception."""

    loop_factory: LoopFactory | None = None  # None: asyncio's own

    presence: Presence | None = None  # once the server has been looked at

    def __init__(self, run: Run, held: str, watch: Watch) -> None:
        self.run = run
        self.held = held
        self.watch = watch
        self.clock = ClientClock()
        self.warnings: list[str] = []
        self._noted = ""
        self.limit_s = 600.0  # the longest silence of a request that is not yet an error, until the server's speed is known
        self.later: list[Callable[[], None]] = []  # what need not be written down before the run is told to be over
        self.switcher = Switcher(run, held, self.warn)

    def go(self) -> None:
        state, error = RunState.FINISHED, ""
        try:
            self.work()
        except LeaseLost:
            log.warning("Run %d was taken from this worker", self.run.pk)
            return
        except RunStopped:
            state = RunState.STOPPED
        except ShardLost as failure:
            state, error = RunState.LOST, failure.text
        except (RunFailed, SchedulerApiError, PromptError, ScenarioError) as failure:
            state, error = RunState.FAILED, str(failure)
        except Exception as failure:
            log.exception("Run %d failed", self.run.pk)
            state, error = RunState.FAILED, f"An unexpected error ended the run ({type(failure).__name__}); see the worker's log."
        try:
            if state is RunState.FAILED and self._restarted_since():
                error = f"The server restarted during the run. {error}"
            recording.finish(self.run, self.held, state, error, self.warnings)
            for work in self.later:
                work()
        except LeaseLost:
            log.warning("Run %d was taken from this worker at its end", self.run.pk)

    def _restarted_since(self) -> bool:
        """What a restart brings about (requests that break off, a policy at another version) is not told as somebody's doing."""
        state = self.presence.another() if self.presence is not None else None
        if state is not None and self.run.policy_version is not None:
            self.switcher.resume(state["policy"]["version"])
        return state is not None

    @abstractmethod
    def work(self) -> None: ...

    def blocks(self) -> None:
        """Each block of the order, with a look for a stop before it."""
        order = steps(self.run.repetitions, order=self.run.order, seed=self.run.seed, floor=self.run.floor)
        for step in order:
            self.watch.check()
            place = f"lock {step.index} of {len(order)}"
            self.say(step.index, f"B{place}: {step.where[0].lower()}{step.where[1:]}")
            self.block(step, f"b{place}")
        self.watch.check()

    @abstractmethod
    def block(self, step: Step, reason: str) -> None: ...

    def mark(self) -> int:
        """The server's last iteration."""
        return int(target.state(self.run.server).get("iteration") or 0)

    def keep_conditions(self, conditions: dict[str, Any], **fields: Any) -> None:
        lease.write(self.run.pk, self.held, conditions=conditions, **fields)
        self.run.conditions = conditions

    def say(self, done: int, text: str) -> None:
        lease.write(self.run.pk, self.held, progress_done=done, progress_text=text, warnings=self.warnings)
        runlog.note(self.run.pk, f"{text}.")

    def note(self, text: str) -> None:
        """What is awaited just now, beside the progress; in the log once."""
        if text != self._noted:
            self._noted = text
            lease.write(self.run.pk, self.held, progress_text=text)
            runlog.note(self.run.pk, f"{text}.")

    def warn(self, text: str) -> None:
        if recording.add_warning(self.warnings, text):
            runlog.note(self.run.pk, text, "warning")

    def guard(self, work: Coroutine[Any, Any, Any]) -> Any:
        return guard(self.watch, work, self.loop_factory)


def guard(watch: Watch, work: Coroutine[Any, Any, Any], loop_factory: LoopFactory | None = None) -> Any:
    """Runs it to its end in a loop of its own. An interruption of the watch cancels it, which closes its sockets."""

    async def guarded() -> Any:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        with watch.calling(lambda: _soon(loop, task)):
            try:
                return await task
            except asyncio.CancelledError:
                watch.check()
                raise

    return asyncio.run(guarded(), loop_factory=loop_factory)


def _soon(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Called from the watch's thread; a loop that has just ended needs no cancelling."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)
