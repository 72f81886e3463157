"""The two-call contract between the scheduler and whoever runs its batches.

`Scheduler.plan(now)` answers with a `Plan`; the caller runs it on a backend, which gives an `Outcome`; `Scheduler.settle(plan,
outcome, now)` answers with a `Settlement`. Nothing here knows a model, a socket, a thread or a clock.

What is made for every batch, or for every slot in it, is a named tuple: it costs a third of a frozen dataclass, and half of
that again when the scheduler makes it with `make(Entry, (...))`, all fields in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.scheduler.task import Group, Task

make = tuple.__new__


class EntryKind(StrEnum):
    PROMPT = "prompt"
    GENERATION = "generation"


class FinishReason(StrEnum):
    """Why a task left its slot; the first four are llama-server's stop types."""

    EOS = "eos"
    WORD = "word"
    LIMIT = "limit"
    NONE = "none"
    CANCELLED = "cancelled"
    ERROR = "error"


class ErrorType(StrEnum):
    """llama-server's error types that a task's end can carry."""

    INVALID_REQUEST = "invalid_request_error"
    EXCEED_CONTEXT = "exceed_context_size_error"
    SERVER = "server_error"
    UNAVAILABLE = "unavailable_error"


@dataclass(frozen=True, slots=True)
class Start:
    """First visit of a task in its slot: keep `n_past` cells of the slot, drop the rest, attach a fresh sampler."""

    slot: int
    task: Task
    n_past: int


class Entry(NamedTuple):
    """A run of tokens of one slot, at consecutive positions, contiguous in the batch.

    `output`: logits are wanted for the last token, and the backend samples a token for the slot from them. `copy_to`: slots of
    waiting children; the backend copies the slot's cells to them after the decode and samples for each from the same row.
    """

    slot: int
    task_id: int
    kind: EntryKind
    tokens: Sequence[int]
    pos: int
    output: bool
    copy_to: tuple[int, ...] = ()


class Skip(NamedTuple):
    """A slot with work that got no token in this batch, and the sentence that says why."""

    slot: int
    reason: str


class Shift(NamedTuple):
    """Cells `keep` to `keep + discard` of a slot are dropped, and those behind them move down."""

    slot: int
    keep: int
    discard: int


class Wish(NamedTuple):
    """A draft model is asked what may come behind a slot's text: at most `n` tokens, for the plan after this one.

    `cells` are the tokens that the slot holds before this batch; they grow when it is settled, so they are read before that.
    """

    slot: int
    task_id: int
    n: int
    cells: Sequence[int]


class Plan(NamedTuple):
    """One batch. `purges` come first (drop every cell of an idle slot, for room in a unified pool), then `starts` (trim,
    sampler), then `entries` in batch order.

    Empty entries: nothing to run, yet the plan must be settled, since tasks may end or held tokens may be let go without a batch;
    such a plan carries the number of the iteration before it. The fields from `phase` on say what was in force when it was built.
    """

    iteration: int
    starts: tuple[Start, ...] = ()
    entries: tuple[Entry, ...] = ()
    child_starts: tuple[Start, ...] = ()  # children whose parent's prompt ends in this batch: they need a sampler of their own
    group: Group | None = None
    anchor: int | None = None
    skipped: tuple[Skip, ...] = ()
    purges: tuple[int, ...] = ()
    phase: str = "continuous"
    cohort: int | None = None
    sealed: bool = False
    held: tuple[int, ...] = ()
    cursor: int | None = None
    policy_version: int = 0
    shifts: tuple[Shift, ...] = ()  # come between purges and starts; each has an entry of its slot in the batch
    drafted: int = 0  # drafted tokens in the batch: all but the first of each decode entry; logits are wanted for all of them
    wishes: tuple[Wish, ...] = ()

    @property
    def n_tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.entries)


class TokenProbs(NamedTuple):
    """A drawn token and the most probable ones at its place, as (token, natural logarithm of its probability).

    A task that asked for what its samplers left has the probabilities themselves.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


Vectors = tuple[tuple[float, ...], ...]
"""What an embedding or reranking task asked for: one vector (of scores), or one for each token of the prompt."""


@dataclass(slots=True)  # frozen would cost a microsecond for each batch
class Outcome:
    """What the backend did: a sampled token for each slot whose output was wanted, or an error for the slot alone.

    `probs` has an entry for each token whose task asked for probabilities; None when no task did. `vectors` has one for each
    finished prompt of a batch of embedding or reranking tasks; None for any other batch. `lost` are slots whose cells the backend
    dropped since they could not be trusted: with an error the task is over, without one its prompt starts again.

    For an entry with a draft `runs` has the tokens drawn, in place of `tokens`: the drafted ones as far as the slot's own sampler
    drew the same, then the one it drew instead, or behind them. The backend has dropped the cells of all others. `run_probs` has
    the probabilities of each of them where the task asked. `drafts` are a draft model's answers to the plan's wishes.
    """

    tokens: dict[int, int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    probs: dict[int, TokenProbs] | None = None
    vectors: dict[int, Vectors] | None = None
    lost: frozenset[int] = frozenset()
    runs: dict[int, tuple[int, ...]] | None = None
    run_probs: dict[int, list[TokenProbs]] | None = None
    drafts: dict[int, tuple[int, ...]] | None = None


class Emission(NamedTuple):
    """A token that a client may see now (a held first token appears here when the barrier opens)."""

    slot: int
    task_id: int
    token: int
    first: bool


class Progress(NamedTuple):
    """Prompt progress of a task after this batch, in tokens; `processed` includes `cache`."""

    slot: int
    task_id: int
    total: int
    cache: int
    processed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A task left its slot in this step, or the queue (then `slot` is -1).

    Times are seconds on the caller's clock, None where the stage was not reached.

    `prompt_s` runs from the first visit to the end of the prompt's last batch, `hold_s` from there to the first token,
    `generation_s` from the first token to the end: a barrier's hold is booked under its own name. `paused_s` of the time from the
    first token to the end the task paused for prompts, under a barrier with a limit of generated tokens. `skipped_s` of the time
    from the first visit to the end of the prompt went by in batches without a token of it.
    """

    slot: int
    task_id: int
    reason: FinishReason
    error: str = ""
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    n_slot_tokens: int = 0
    submitted_at: float = 0.0
    assigned_at: float | None = None
    first_visit_at: float | None = None
    prompt_done_at: float | None = None
    first_token_at: float | None = None
    finished_at: float = 0.0
    paused_s: float = 0.0
    skipped_s: float = 0.0
    truncated: bool = False  # the slot's context was full
    error_type: ErrorType | None = None
    vectors: Vectors | None = None
    n_drafted: int = 0  # drafted tokens that were checked
    n_accepted: int = 0  # of them, those that were right


class Settlement(NamedTuple):
    """What a step made known, each list in slot order."""

    started: tuple[int, ...] = ()  # task ids visited for the first time in this step
    progress: tuple[Progress, ...] = ()
    emissions: tuple[Emission, ...] = ()
    finished: tuple[Finished, ...] = ()
