"""Log lines for what failed: one for a whole batch with all whom it hit, one for each task that failed alone."""

from __future__ import annotations

import logging

from engine.scheduler.plan import ErrorType, Finished, Plan

log = logging.getLogger("engine.scheduler")


class FaultLog:
    """Used by the loop thread alone, and only when something failed."""

    def __init__(self) -> None:
        self._named: frozenset[int] = frozenset()

    def iteration(self, plan: Plan, error: str) -> None:
        slots, tasks = [entry.slot for entry in plan.entries], [entry.task_id for entry in plan.entries]
        self._named = frozenset(tasks)
        fields = {"iteration": plan.iteration, "policy_version": plan.policy_version, "slots": slots, "tasks": tasks}
        text = "Iteration %d failed: %s Its tasks end: %s in slots %s"
        log.warning(text, plan.iteration, _sentence(error), _listed(tasks), _listed(slots), extra=fields)

    def task(self, finished: Finished) -> None:
        """A task that ended in error; silent for one that a line named already, or whose client asked too much."""
        if finished.task_id in self._named or finished.error_type is not ErrorType.SERVER:
            return
        fields = {"task": finished.task_id, "slot": finished.slot}
        log.warning("Task %d in slot %d failed: %s", finished.task_id, finished.slot, _sentence(finished.error), extra=fields)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
