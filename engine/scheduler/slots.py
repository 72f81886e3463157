"""A slot: the cells it holds, the task in it, and where that task stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from engine.scheduler.plan import Shift
from engine.scheduler.task import Group, Lora, Task, TaskType

UNLIMITED = 1 << 62


class SlotState(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"  # has a slot, its cohort has not begun
    WAITING = "waiting"  # prompt work, no token in the last batch
    PROMPT = "prompt"  # prompt work, tokens in the last batch
    HELD = "held"  # prompt done, first token drawn and kept back
    GENERATING = "generating"


_LEGAL: dict[SlotState, frozenset[SlotState]] = {
    SlotState.IDLE: frozenset({SlotState.QUEUED, SlotState.WAITING}),
    SlotState.QUEUED: frozenset({SlotState.WAITING, SlotState.IDLE}),
    SlotState.WAITING: frozenset({SlotState.PROMPT, SlotState.QUEUED, SlotState.HELD, SlotState.IDLE}),
    SlotState.PROMPT: frozenset({SlotState.WAITING, SlotState.QUEUED, SlotState.HELD, SlotState.IDLE}),
    SlotState.HELD: frozenset({SlotState.GENERATING, SlotState.IDLE}),
    SlotState.GENERATING: frozenset({SlotState.IDLE}),
}

# tuples: `in` compares identities first, where a set would call the enum's own hash
PENDING = (SlotState.WAITING, SlotState.PROMPT)
_UNSERVED = (SlotState.QUEUED, SlotState.WAITING)
_PROMPT_WORK = (SlotState.QUEUED, SlotState.WAITING, SlotState.PROMPT)
PROMPT_DONE = (SlotState.HELD, SlotState.GENERATING)


class Cells(list[int]):
    """The tokens that an idle slot holds, with the LoRA list they were computed under."""

    __slots__ = ("lora",)

    def __init__(self, tokens: Iterable[int], lora: Lora = ()) -> None:
        super().__init__(tokens)
        self.lora = lora


@dataclass(slots=True)
class Slot:
    """Mutable, owned by the scheduler alone. `cells` are the tokens that are surely in the KV cache of this slot.

    They were computed under `lora`; `shares`: some are another slot's too; `shift`: cells that are in the memory still and not
    in `cells`. `n_cached`: cells kept for the task, known from the moment it takes the slot. `parent`: id of the task whose
    prompt this child waits for. `first_token`: drawn and not yet shown. `last_token`: shown and not yet in a cell. `passed`:
    batches in a row that passed it over. `parked`: its prompt gave up its cells and starts again when the pool has room.
    `turn_from`: `n_generated` when its cohort's generation began. `paused_at`: generates, and pauses for prompts.
    `skipped_s`: since its first visit, in batches without a token of its prompt. `n_drafted`: drafted tokens that were checked,
    `n_accepted` of them right.
    """

    id: int
    state: SlotState = SlotState.IDLE
    since: float = 0.0
    cells: list[int] = field(default_factory=list)
    lora: Lora = ()
    shares: bool = False
    shift: Shift | None = None
    last_used: int = -1
    last_service: int | None = None
    task: Task | None = None
    task_id: int = -1
    group: Group | None = None
    prompt: list[int] = field(default_factory=list)
    parent: int | None = None
    atomic: bool = False
    member: bool = False
    visited: bool = False
    n_cached: int = 0
    n_generated: int = 0
    limit: int = UNLIMITED
    eog: frozenset[int] = frozenset()
    first_token: int | None = None
    last_token: int = -1
    why: str = ""
    passed: int = 0
    turn_from: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    truncated: bool = False
    parked: bool = False
    paused_at: float | None = None
    paused_s: float = 0.0
    skipped_s: float = 0.0
    submitted_at: float = 0.0
    assigned_at: float | None = None
    first_visit_at: float | None = None
    prompt_done_at: float | None = None
    first_token_at: float | None = None

    @property
    def done(self) -> int:
        """Prompt tokens that need no more work, cached ones included."""
        if self.state in PROMPT_DONE:
            return len(self.prompt)
        return len(self.cells) if self.visited else self.n_cached

    @property
    def left(self) -> int:
        """Prompt tokens to compute, for a slot with prompt work."""
        return len(self.prompt) - (len(self.cells) if self.visited else self.n_cached)

    @property
    def needs_token(self) -> bool:
        return self.task is not None and self.task.group.type in (TaskType.COMPLETION, TaskType.INFILL)

    def enter(self, state: SlotState, now: float) -> None:
        if state is self.state:
            return
        if state not in _LEGAL[self.state]:
            raise RuntimeError(f"slot {self.id} cannot go from {self.state} to {state}")
        if self.first_visit_at is not None and self.state in _UNSERVED and state in _PROMPT_WORK:
            self.skipped_s += now - max(self.since, self.first_visit_at)
        self.state = state
        self.since = now

    def take(self, task: Task, prompt: list[int], group: Group, *, submitted_at: float, now: float) -> None:
        """The task moves in; nothing happens to the cells before its first visit."""
        self.task = task
        self.task_id = task.id
        self.eog = task.eog
        self.prompt = prompt
        self.group = group
        self.limit = UNLIMITED if task.n_predict < 0 else max(1, task.n_predict)
        self.submitted_at = submitted_at
        self.assigned_at = now

    def visit(self, now: float) -> None:
        self.visited = True
        self.first_visit_at = now
        del self.cells[self.n_cached :]
        self.lora = () if self.group is None else self.group.lora
        self.shares = self.shares and self.n_cached > 0

    def pause(self, now: float) -> None:
        if self.paused_at is None:
            self.paused_at = now

    def resume(self, now: float) -> None:
        if self.paused_at is not None:
            self.paused_s += now - self.paused_at
            self.paused_at = None

    def release(self, stamp: int, now: float) -> None:
        """Back to idle; the cells stay for the next prompt that shares their beginning."""
        if self.shift is not None:
            del self.cells[self.shift.keep :]
        self.enter(SlotState.IDLE, now)
        self.last_used = stamp
        self.task = self.group = self.parent = self.first_token = self.shift = None
        self.task_id = -1
        self.eog = frozenset()
        self.prompt = []
        self.atomic = self.member = self.visited = self.truncated = self.parked = False
        self.n_cached = self.n_generated = 0
        self.limit = UNLIMITED
        self.last_token = -1
        self.why = ""
        self.passed = self.turn_from = self.n_drafted = self.n_accepted = 0
        self.paused_s = self.skipped_s = self.submitted_at = 0.0
        self.paused_at = None
        self.assigned_at = self.first_visit_at = self.prompt_done_at = self.first_token_at = None
