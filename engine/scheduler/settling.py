"""Books what a batch did: cells, first and later tokens, ends, and what a barrier lets go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.phases import Phases
from engine.scheduler.plan import Emission, Entry, EntryKind, FinishReason, Outcome, Plan, Progress, Settlement, make
from engine.scheduler.shifting import Shifting, forget_shifted
from engine.scheduler.slots import PROMPT_DONE, Slot, SlotState
from engine.scheduler.tenancy import Tenancy
from engine.scheduler.view import Totals

NO_TOKEN = "the backend gave no token for this slot"

_by_slot = attrgetter("slot")


@dataclass(slots=True)
class Step:
    """A settlement in the making."""

    started: list[tuple[int, int]] = field(default_factory=list)  # (slot, task id)
    progress: list[Progress] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)


class Settling:
    def __init__(
        self,
        config: SchedulerConfig,
        slots: list[Slot],
        phases: Phases,
        tenancy: Tenancy,
        totals: Totals,
        shifting: Shifting,
    ) -> None:
        self._n_ctx_slot = config.n_ctx_slot
        self._is_pool = config.kv_mode == "unified"
        self._shifting = shifting
        self._slots = slots
        self._phases = phases
        self._tenancy = tenancy
        self._totals = totals

    def settle(self, plan: Plan, outcome: Outcome, now: float) -> Settlement:
        step = Step()
        if plan.starts:
            self._book_starts(plan, step)
        slots, tokens, errors, iteration = self._slots, outcome.tokens, outcome.errors, plan.iteration
        prompt, runs = EntryKind.PROMPT, outcome.runs
        for entry in plan.entries:
            slot = slots[entry.slot]
            if slot.task_id != entry.task_id:
                continue
            if errors and slot.id in errors and not entry.copy_to:
                forget_shifted(plan, slots, slot.id)
                self._fail_slot(slot, errors[slot.id], now)
                continue
            slot.last_service = iteration
            if entry.kind is prompt:
                self._prompted(slot, entry, outcome, step, now)
                continue
            if runs is not None and slot.id in runs:
                self._ran(slot, entry, runs[slot.id], step, now)
                continue
            token = tokens.get(slot.id)
            if token is None:
                self._fail_slot(slot, NO_TOKEN, now)
            else:
                slot.cells.append(entry.tokens[0])
                self._emit(slot, token, step, now, first=False)
        if outcome.lost:
            self._forget(outcome.lost)
        return self._close(step, now)

    def _ran(self, slot: Slot, entry: Entry, run: Sequence[int], step: Step, now: float) -> None:
        """The entry's tokens are in cells as far as the run goes: the last token drawn is in none, as ever."""
        for place, token in enumerate(run):
            slot.cells.append(entry.tokens[place])
            self._emit(slot, token, step, now, first=False)
            if slot.task_id != entry.task_id:
                return

    def _forget(self, lost: Iterable[int]) -> None:
        """These slots hold nothing any more: a prompt that is under way starts again, a kept beginning is not kept."""
        for index in lost:
            slot = self._slots[index]
            if slot.state not in PROMPT_DONE:
                slot.cells.clear()
                slot.n_cached, slot.shares = 0, False

    def _book_starts(self, plan: Plan, step: Step) -> None:
        for start in plan.starts:
            if self._slots[start.slot].task_id == start.task.id:
                self._totals.cached_tokens += start.n_past
                step.started.append((start.slot, start.task.id))

    def generated(self, slots: Sequence[Slot], tokens: Mapping[int, int], iteration: int, now: float) -> Settlement:
        """Books a batch in which exactly these slots generated, as `settle` would; nothing is held and nothing waits."""
        emissions, over, n_ctx_slot = [], [], self._n_ctx_slot
        for slot in slots:
            token = tokens.get(slot.id)
            if token is None:
                over.append(slot)
                continue
            cells = slot.cells
            cells.append(slot.last_token)
            slot.last_token = token
            slot.last_service = iteration
            slot.n_generated = n = slot.n_generated + 1
            emissions.append(make(Emission, (slot.id, slot.task_id, token, False)))
            if token in slot.eog or n >= slot.limit or len(cells) + 1 >= n_ctx_slot:
                over.append(slot)
        if over:
            return self._over(over, emissions, tokens, now)
        self._totals.generated_tokens += len(emissions)
        settlement: Settlement = make(Settlement, ((), (), tuple(emissions), ()))
        return settlement

    def _over(self, slots: Sequence[Slot], emissions: list[Emission], tokens: Mapping[int, int], now: float) -> Settlement:
        for slot in slots:
            if slot.id in tokens:
                self._end_if_over(slot, now)
            else:
                self._fail_slot(slot, NO_TOKEN, now)
        return self._close(Step(emissions=emissions), now)

    def fail(self, plan: Plan, message: str, now: float) -> Settlement:
        """The batch failed as a whole: tasks in it end in error, everybody else stays where they are."""
        self.drop(plan, message, now)
        return self._close(Step(), now)

    def relieved(self, plan: Plan, victim: Slot | None, message: str, now: float) -> Settlement:
        """The batch did not fit into the pool. At most one task ends, all others stay where they are."""
        step = Step()
        self._book_starts(plan, step)
        if victim is not None:
            self._fail_slot(victim, message, now)
        return self._close(step, now)

    def drop(self, plan: Plan, message: str, now: float) -> None:
        """Ends the tasks in a batch; the next settlement reports them."""
        forget_shifted(plan, self._slots)
        for entry in plan.entries:
            slot = self._slots[entry.slot]
            if slot.task_id == entry.task_id:
                self._fail_slot(slot, message, now)

    def _fail_slot(self, slot: Slot, message: str, now: float) -> None:
        self._tenancy.ended.append(self._tenancy.end(slot, FinishReason.ERROR, now, message, cells_known=False))

    def _prompted(self, slot: Slot, entry: Entry, outcome: Outcome, step: Step, now: float) -> None:
        cells, tokens = slot.cells, entry.tokens
        cells.extend(tokens)
        self._totals.prompt_tokens += len(tokens)
        step.progress.append(make(Progress, (slot.id, slot.task_id, len(slot.prompt), slot.n_cached, len(cells))))
        if not entry.output:
            return
        for child_id in entry.copy_to:
            self._copied(slot, self._slots[child_id], outcome, step, now)
        if slot.first_visit_at is not None:
            self._totals.prompt_s += now - slot.first_visit_at
        self._prompt_done(slot, outcome, now)

    def _copied(self, parent: Slot, child: Slot, outcome: Outcome, step: Step, now: float) -> None:
        """The child holds the parent's cells and its prompt counts as the parent's did."""
        if child.parent != parent.task_id:
            return
        child.cells = list(parent.cells)
        child.lora = parent.lora
        if self._is_pool:  # one cell for both
            parent.shares = child.shares = True
        child.parent = None
        child.visited = True
        child.n_cached = parent.n_cached
        child.first_visit_at = parent.first_visit_at
        child.skipped_s = parent.skipped_s
        step.started.append((child.id, child.task_id))
        step.progress.append(Progress(child.id, child.task_id, len(child.prompt), child.n_cached, len(child.cells)))
        self._prompt_done(child, outcome, now)

    def _prompt_done(self, slot: Slot, outcome: Outcome, now: float) -> None:
        """A sampling task is held, in continuous mode only until the end of this step; an embedding leaves at once."""
        slot.prompt_done_at = now
        self._phases.prompt_done(slot)
        error = outcome.errors.get(slot.id)
        token = outcome.tokens.get(slot.id)
        if error is not None or (token is None and slot.needs_token):
            self._fail_slot(slot, error or NO_TOKEN, now)
        elif not slot.needs_token:
            self._end(slot, FinishReason.NONE, now)
            if outcome.vectors is not None:
                self._tenancy.ended[-1] = replace(self._tenancy.ended[-1], vectors=outcome.vectors.get(slot.id))
        else:
            slot.first_token = token
            slot.enter(SlotState.HELD, now)

    def _emit(self, slot: Slot, token: int, step: Step, now: float, *, first: bool) -> None:
        slot.last_token = token
        slot.n_generated = n = slot.n_generated + 1
        step.emissions.append(make(Emission, (slot.id, slot.task_id, token, first)))
        if token in slot.eog or n >= slot.limit or len(slot.cells) + 1 >= self._n_ctx_slot:
            self._end_if_over(slot, now)

    def _end_if_over(self, slot: Slot, now: float) -> None:
        """llama-server's rule for a full context: the token just drawn would take the last cell."""
        if slot.last_token in slot.eog:
            self._end(slot, FinishReason.EOS, now)
        elif slot.n_generated >= slot.limit or not self._shifting.make_room(slot):
            self._end(slot, FinishReason.LIMIT, now, truncated=slot.n_generated < slot.limit)

    def _end(self, slot: Slot, reason: FinishReason, now: float, *, truncated: bool = False) -> None:
        self._tenancy.ended.append(self._tenancy.end(slot, reason, now, truncated=truncated))

    def _let_go(self, step: Step, now: float) -> None:
        held = self._phases.let_go(now)
        for slot in held:
            token, slot.first_token = slot.first_token, None
            assert token is not None
            slot.enter(SlotState.GENERATING, now)
            slot.first_token_at = now
            self._emit(slot, token, step, now, first=True)
        if held:
            step.emissions.sort(key=_by_slot)

    def _close(self, step: Step, now: float) -> Settlement:
        self._let_go(step, now)
        self._phases.close_if_empty()
        self._tenancy.admit(now)
        self._totals.generated_tokens += len(step.emissions)
        started = tuple([task_id for _, task_id in sorted(step.started)]) if step.started else ()
        progress = tuple(sorted(step.progress, key=_by_slot)) if step.progress else ()
        return make(Settlement, (started, progress, tuple(step.emissions), self._tenancy.take_ended()))
