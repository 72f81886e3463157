"""What is counted while the server works, for GET /metrics and for the log. Written by the loop thread, read by any."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from engine.scheduler.control import PolicyState
from engine.scheduler.plan import Finished
from engine.scheduler.records import IterationRecord

log = logging.getLogger("engine.scheduler")

MOST_FRESH = 1024
RECENT = 64
SLOWDOWNS = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
MOST_RECORDS = 64
_sorting = threading.Lock()
_counting = threading.Lock()

# Upper bounds in seconds: of waits and of the time to a first token; of the time between tokens and of a batch.
WAITS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STEPS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


class Histogram:
    """Counts of durations up to each bound, and above the last. Durations are sorted in when somebody reads, or by the thousand.

    Adding is all that happens between two batches, where each microsecond delays every stream.
    """

    __slots__ = ("_counts", "_fresh", "_total", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._fresh: deque[float] = deque()

    def add(self, seconds: float) -> None:
        self._fresh.append(seconds)
        if len(self._fresh) > MOST_FRESH:
            self._sort_in()

    def read(self) -> tuple[list[int], float]:
        """Counts by bound, and the sum of all durations in seconds."""
        self._sort_in()
        return list(self._counts), self._total

    def _sort_in(self) -> None:
        with _sorting:
            while self._fresh:
                seconds = max(0.0, self._fresh.popleft())
                self._counts[bisect_left(self.bounds, seconds)] += 1
                self._total += seconds


class Meters:
    def __init__(self, n_slots: int) -> None:
        self.ttft = Histogram(WAITS_S)
        self.itl = Histogram(STEPS_S)
        self.queue_wait = Histogram(WAITS_S)
        self.first_visit_wait = Histogram(WAITS_S)
        self.hold = Histogram(WAITS_S)
        self.slowdown = Histogram(SLOWDOWNS)
        self.slowdowns: deque[float] = deque(maxlen=RECENT)  # of the last tasks that came to an answer
        self._gaps: dict[int, int] = {}  # batches in a row, up to the last, that left a slot's work out
        self._longest_gap = 0
        self._iteration_time = Histogram(STEPS_S)
        self._prompt_tokens = [0] * n_slots
        self._generated_tokens = [0] * n_slots
        self._drafted_tokens = [0] * n_slots
        self._accepted_tokens = [0] * n_slots
        self._accepted_at: list[int] = []
        self._n_busy_sum = 0
        self._fresh: deque[IterationRecord] = deque()  # not yet counted, for the reason that `Histogram` has
        self.service: deque[float] = deque(maxlen=RECENT)  # seconds that the last tasks had their slots
        self.refused = 0  # requests that found the queue full
        self.expired = 0  # tasks that waited longer than they were to
        self.cohorts = 0
        self._cohort: int | None = None
        self.version = 0

    def iteration(self, record: IterationRecord) -> None:
        self._fresh.append(record)
        if record.cohort != self._cohort:
            self._cohort_changed(record)
        if len(self._fresh) > MOST_RECORDS:
            self._count()

    @property
    def iteration_time(self) -> Histogram:
        self._count()
        return self._iteration_time

    @property
    def prompt_tokens(self) -> list[int]:
        """Prompt tokens computed, by slot."""
        self._count()
        return list(self._prompt_tokens)

    @property
    def generated_tokens(self) -> list[int]:
        """Generated tokens whose batch ran, by slot."""
        self._count()
        return list(self._generated_tokens)

    @property
    def drafts(self) -> list[tuple[int, int]]:
        """Drafted tokens that were checked, and of them those that were right, by slot."""
        self._count()
        return list(zip(self._drafted_tokens, self._accepted_tokens, strict=True))

    @property
    def accepted_at(self) -> list[int]:
        """How many drafted tokens were right, by their place in the draft."""
        self._count()
        return list(self._accepted_at)

    @property
    def n_busy_sum(self) -> int:
        """Busy slots summed over iterations."""
        self._count()
        return self._n_busy_sum

    @property
    def longest_gap(self) -> int:
        """Most batches in a row that left out a slot with work."""
        self._count()
        return self._longest_gap

    def _count(self) -> None:
        with _counting:
            while self._fresh:
                record = self._fresh.popleft()
                self._iteration_time.add((record.plan_ms + record.run_ms + record.settle_ms) / 1e3)
                for slot, n in record.prompt:
                    self._prompt_tokens[slot] += n
                for slot, n in record.generation:
                    self._generated_tokens[slot] += n
                for slot, n_drafted, n_accepted in record.drafted:
                    self._book_draft(slot, n_drafted, n_accepted)
                if record.skipped or self._gaps:
                    self._gaps = {skip.slot: self._gaps.get(skip.slot, 0) + 1 for skip in record.skipped}
                    self._longest_gap = max(self._longest_gap, *self._gaps.values(), 0)
                self._n_busy_sum += len(record.prompt) + len(record.generation) + len(record.skipped) + len(record.held)

    def _book_draft(self, slot: int, n_drafted: int, n_accepted: int) -> None:
        self._generated_tokens[slot] -= n_drafted - n_accepted  # they were in the batch and came to nothing
        self._drafted_tokens[slot] += n_drafted
        self._accepted_tokens[slot] += n_accepted
        if n_accepted > len(self._accepted_at):
            self._accepted_at += [0] * (n_accepted - len(self._accepted_at))
        for place in range(n_accepted):
            self._accepted_at[place] += 1

    def _cohort_changed(self, record: IterationRecord) -> None:
        if record.cohort is None:
            return
        self._cohort = record.cohort
        self.cohorts += 1
        slots = ", ".join(str(slot) for slot, _ in record.prompt) or "none"
        text = "Cohort %d began at iteration %d, first prompts from slots %s"
        fields = {
            "cohort": record.cohort,
            "iteration": record.iteration,
            "policy_version": record.policy_version,
            "slots": [slot for slot, _ in record.prompt],
        }
        log.info(text, record.cohort, record.iteration, slots, extra=fields)

    def token(self, previous: float | None, now: float, submitted: float) -> None:
        if previous is None:
            self.ttft.add(now - submitted)
        else:
            self.itl.add(now - previous)

    def finished(self, end: Finished) -> None:
        if end.assigned_at is not None:
            self.service.append(end.finished_at - end.assigned_at)
            self.queue_wait.add(end.assigned_at - end.submitted_at)
            if end.first_visit_at is not None:
                self.first_visit_wait.add(end.first_visit_at - end.assigned_at)
        if end.prompt_done_at is not None and end.first_token_at is not None:
            self.hold.add(end.first_token_at - end.prompt_done_at)
            if (factor := slowdown(end)) is not None:
                self.slowdown.add(factor)
                self.slowdowns.append(factor)

    def policy(self, state: PolicyState) -> None:
        """One line for each version, whoever made it: a client, or a deadline."""
        if state.version == self.version:
            return
        first, self.version = not self.version, state.version
        if not first:
            fields = " ".join(f"{name}={value}" for name, value in state.effective.as_dict().items() if value is not None)
            why = f", because: {state.reason}" if state.reason else ""
            extra = {"policy_version": state.version, "iteration": state.effective_from_iteration}
            text = "Policy %d from iteration %d: %s%s"
            log.info(text, state.version, state.effective_from_iteration, fields, why, extra=extra)


def slowdown(end: Finished) -> float | None:
    """A task's time from submission to its end, over the part of it in which it was served; None when that was no time at all.

    Not served: in the queue, before the first visit, in batches without it, held, paused.
    """
    if end.first_visit_at is None or end.prompt_done_at is None or end.first_token_at is None:
        return None
    prompt = end.prompt_done_at - end.first_visit_at - end.skipped_s
    served = prompt + end.finished_at - end.first_token_at - end.paused_s
    return (end.finished_at - end.submitted_at) / served if served > 0 else None


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness, (sum x)^2 / (n sum x^2): 1 when all shares are equal, 1/n when one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
