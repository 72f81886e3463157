"""Which task gets which slot: pinned slot, longest common prefix, least recently used; and the queue of those that got none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.plan import ErrorType
from engine.scheduler.prefix import common_prefix, reusable
from engine.scheduler.slots import Slot
from engine.scheduler.task import VECTOR_TYPES, Task


@dataclass(slots=True)
class Waiting:
    """A task without a slot. `passed` counts younger tasks that took a slot before it."""

    task: Task
    prompt: list[int]
    since: float
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a task never takes a slot; an empty prompt ends without an error and without a token."""

    message: str = ""
    type: ErrorType | None = None


def is_atomic(task: Task, config: SchedulerConfig) -> bool:
    """The prompt must fit into one sub-batch as a whole."""
    return task.group.type in VECTOR_TYPES and not config.split_embeddings


def rejection(task: Task, config: SchedulerConfig) -> Rejection | None:
    """The checks that llama-server makes at a prompt's first visit, with its texts, before the task costs anybody a slot."""
    n = len(task.prompt)
    if n == 0:
        return Rejection()
    if 1 + len(task.children) > config.n_slots:
        text = "n_cmpl cannot be greater than the number of slots, please increase -np"
        return Rejection(text, ErrorType.INVALID_REQUEST)
    if is_atomic(task, config):
        if n > min(config.n_ubatch, config.n_batch):
            size = min(config.n_ubatch, config.n_batch)
            text = f"input ({n} tokens) is too large to process. increase the physical batch size (current batch size: {size})"
            return Rejection(text, ErrorType.SERVER)
        if n > config.n_ctx_slot:
            text = f"input ({n} tokens) is larger than the max context size ({config.n_ctx_slot} tokens). skipping"
            return Rejection(text, ErrorType.EXCEED_CONTEXT)
    elif n >= config.n_ctx_slot:
        text = f"request ({n} tokens) exceeds the available context size ({config.n_ctx_slot} tokens), try increasing it"
        return Rejection(text, ErrorType.EXCEED_CONTEXT)
    return None


def choose_slot(task: Task, prompt: list[int], slots: Sequence[Slot], config: SchedulerConfig) -> Slot | None:
    """The idle slot for a task, None when there is none for it now.

    Least recently used: ties go to the highest index, so on a fresh server unpinned tasks fill slots from the top, as in
    llama-server.
    """
    if task.id_slot != -1:
        slot = slots[task.id_slot % len(slots)]
        return slot if slot.task is None else None
    idle = [slot for slot in slots if slot.task is None]
    if not idle:
        return None
    return _most_similar(task, prompt, idle, config) or min(idle, key=lambda slot: (slot.last_used, -slot.id))


def _most_similar(task: Task, prompt: list[int], idle: Sequence[Slot], config: SchedulerConfig) -> Slot | None:
    if config.slot_prompt_similarity <= 0.0:
        return None
    best, best_kept = None, config.slot_prompt_similarity * len(prompt)
    for slot in idle:
        if not slot.cells or slot.lora != task.group.lora:
            continue
        kept = common_prefix(slot.cells, prompt) if config.can_trim else reusable(slot.cells, prompt, can_trim=False)
        if kept > best_kept:
            best, best_kept = slot, kept
    return best


def choose_child_slots(parent: Slot, n: int, slots: Sequence[Slot]) -> list[Slot] | None:
    """Idle slots for the children, least recently used first; None when there are not enough."""
    idle = sorted((s for s in slots if s.task is None and s is not parent), key=lambda slot: (slot.last_used, -slot.id))
    return idle[:n] if len(idle) >= n else None


def child_task(parent: Task, index: int) -> Task:
    """The task of the child at `index`: its own id, and a seed of its own when the parent's seed is fixed."""
    sampling = parent.sampling
    if sampling.seed is not None:
        sampling = replace(sampling, seed=sampling.seed + index + 1)
    return replace(parent, id=parent.children[index], id_slot=-1, children=(), sampling=sampling)


def n_left_out(tasks: Iterable[Task], free: set[int], n_slots: int) -> int:
    """How many of the tasks, oldest first, find too few of the `free` slots left by those before them."""
    left = set(free)
    out = 0
    for task in tasks:
        pinned = task.id_slot % n_slots if task.id_slot != -1 and n_slots else None
        if len(left) <= len(task.children) or (pinned is not None and pinned not in left):
            out += 1
            continue
        left.discard(pinned if pinned is not None else max(left))
        for _ in task.children:
            left.pop()
    return out


class Queue:
    """Tasks without a slot, oldest first. A task is passed over while no slot suits it, so a pinned one never blocks the others.

    A parent needs several slots at once and could be passed over for ever; after `patience` younger tasks nothing younger than
    the parent starts any more until it has its slots.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._items: OrderedDict[int, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items.values())

    @property
    def oldest(self) -> Waiting | None:
        return next(iter(self._items.values()), None)

    @property
    def holds_all_back(self) -> bool:
        """A parent has been passed over for long enough: nothing younger starts before it."""
        return any(item.task.children and item.passed >= self._patience for item in self._items.values())

    def add(self, item: Waiting) -> None:
        self._items[item.task.id] = item

    def remove(self, task_id: int) -> Waiting | None:
        return self._items.pop(task_id, None)

    def drop_child(self, child_id: int) -> Waiting | None:
        """Takes a child out of the queued parent that would start it; None when no queued parent has it."""
        for item in self._items.values():
            if child_id in item.task.children:
                item.task = replace(item.task, children=tuple(c for c in item.task.children if c != child_id))
                return item
        return None

    def next_runnable(self, slots: Sequence[Slot], config: SchedulerConfig) -> tuple[Waiting, Slot, list[Slot]] | None:
        """The oldest task that can run now, taken out of the queue, with its slot and its children's slots."""
        n_idle = sum(slot.task is None for slot in slots)
        passed: list[Waiting] = []
        for item in self._items.values():
            if n_idle == 0:
                return None
            found = self._places(item, n_idle, slots, config)
            if found is not None:
                for older in passed:
                    older.passed += 1
                del self._items[item.task.id]
                return item, *found
            if item.task.children and item.passed >= self._patience:
                return None
            passed.append(item)
        return None

    @staticmethod
    def _places(item: Waiting, n_idle: int, slots: Sequence[Slot], config: SchedulerConfig) -> tuple[Slot, list[Slot]] | None:
        if n_idle <= len(item.task.children):
            return None
        slot = choose_slot(item.task, item.prompt, slots, config)
        if slot is None:
            return None
        children = choose_child_slots(slot, len(item.task.children), slots)
        return None if children is None else (slot, children)
