"""Which slots get drafted tokens into a batch, and how many: as long as they bring more than they cost.

A drafted token is worth what a token costs without drafts, times the chance that it is right; it costs what it adds to the time
of its batch. Both are measured: the chance for each slot, the time for each number of generating slots. A slot's guesses are held
against what then comes even where nothing is drafted, so a text that begins to repeat itself is noticed for nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.scheduler.lookup import WINDOW, NgramIndex
from engine.scheduler.plan import Entry, Outcome, Plan, Wish
from engine.scheduler.policy import Policy, Speculative
from engine.scheduler.slots import UNLIMITED, Slot

UNKNOWN_PRICE = 0.5  # of a drafted token, in tokens without drafts, before it was measured
SAMPLES = 9  # batches that a price is taken from, by their median
FADING = 0.9  # weight of what was seen before, with each token more
LONGEST_WAIT = 16  # tokens between two looks into a text that never repeats itself
LONGEST_REST = 128  # tokens between two tries of a draft model that does not pay
LIKELY = 0.75  # a chance of being right with which a guess is worth a try whatever drafts have cost
TRY_AFTER = 64  # likely guesses that were not drafted
TRY_LENGTH = 4
PAUSE = 32  # batches without drafts after one that found too little room


@dataclass(slots=True)
class Drafter:
    """What is known of one task's drafts. `seen`: tokens that it had generated when it was looked at last.

    `guess`: what was proposed then and not put into a batch. `rest`: tokens to wait before the next look. `forgone`: guesses
    that were likely, and too dear.
    """

    task_id: int
    seen: int
    index: NgramIndex | None
    guess: list[int] = field(default_factory=list)
    hits: float = 1.2
    tries: float = 2.0
    misses: int = 0
    fails: int = 0
    rest: int = 0
    forgone: int = 0

    @property
    def chance(self) -> float:
        """That a guessed token is right, those before it being so."""
        return self.hits / self.tries

    def learn(self, n_right: int, *, all_right: bool) -> None:
        """`n_right` guesses in a row were right, and then one was wrong, unless `all_right`."""
        if n_right == 0 and all_right:
            return
        faded = FADING**n_right
        gained = (1.0 - faded) / (1.0 - FADING)  # the sum of n_right fading ones
        self.hits, self.tries = faded * self.hits + gained, faded * self.tries + gained
        if not all_right:
            self.hits, self.tries = FADING * self.hits, FADING * self.tries + 1.0
        self.fails = 0 if n_right else self.fails + 1


class Prices:
    """Seconds of batches by how many slots generate in them, and what a drafted token adds, both as medians of the last few."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._ratio: dict[int, deque[float]] = {}

    def note(self, n_slots: int, n_drafted: int, seconds: float) -> None:
        if seconds <= 0.0:
            return
        if not n_drafted:
            self._plain.setdefault(n_slots, deque(maxlen=SAMPLES)).append(seconds)
        elif (plain := self._plain.get(n_slots)) is not None:
            alone = _median(plain)
            added = max(0.0, seconds - alone) / n_drafted
            self._ratio.setdefault(n_slots, deque(maxlen=SAMPLES)).append(added * n_slots / alone)

    def knows(self, n_slots: int) -> bool:
        return n_slots in self._plain

    def of(self, n_slots: int) -> float:
        """What a drafted token costs, in tokens without drafts. Before much is measured the guess counts as a measurement."""
        known = self._ratio.get(n_slots, ())
        return _median([UNKNOWN_PRICE, *known] if len(known) < SAMPLES else known)


def best_length(chance: float, price: float, most: int) -> int:
    """How many tokens to draft: the k-th is right with chance**k, and pays while that is above its price."""
    if most <= 0 or chance <= price:
        return 0
    if price <= 0.0 or chance >= 1.0:
        return most
    return min(most, int(math.log(price) / math.log(chance)))


class Speculation:
    """One for as long as the policy asks for drafts. `booked`: (slot, drafted, accepted) of the last batch that had some."""

    def __init__(self, n_ctx_slot: int) -> None:
        self._n_ctx_slot = n_ctx_slot
        self._policy = Policy()
        self._drafters: dict[int, Drafter] = {}
        self._prices = Prices()
        self._planned_at: float | None = None
        self._pause = 0
        self._drafts: Mapping[int, Sequence[int]] = {}
        self._asked = False
        self.booked: tuple[tuple[int, int, int], ...] = ()

    def follow(self, policy: Policy) -> None:
        known = self._policy
        if (policy.speculative, policy.speculative_ngram_size) != (known.speculative, known.speculative_ngram_size):
            self._drafters.clear()
            self._drafts = {}
            self._prices = Prices()
        self._policy = policy

    def draft(
        self, entries: Sequence[Entry], slots: Sequence[Slot], room: int, turn: int | None, now: float
    ) -> tuple[list[Entry], int, tuple[Wish, ...]]:
        """The entries of a batch of decode tokens alone, with drafts in them; how many tokens these have; whom to draft for next.

        `room`: most tokens that may be drafted for all slots together. `turn`: tokens that a slot may generate until it pauses.
        All drafts of a batch have one length, the one that drafts most: llama.cpp computes runs of each length on their own.
        """
        self._planned_at = now
        self.booked = ()
        if self._pause:
            self._pause -= 1
            return list(entries), 0, ()
        proposed: dict[int, Sequence[int]] = {}
        wishes: list[Wish] = []
        price, is_known = self._prices.of(len(entries)), self._prices.knows(len(entries))
        for entry in entries:
            slot = slots[entry.slot]
            most = self._most(slot, turn)
            drafter = self._drafter(slot)
            if self._policy.speculative is Speculative.DRAFT:
                found = self._drafts.get(slot.id, ())[:most]
                length = self._wished(drafter, price, most) if is_known else 0
                if length:
                    wishes.append(Wish(slot.id, slot.task_id, length, slot.cells))
            else:
                found = self._looked_up(drafter, most)
                found = found[: self._pays(drafter, price, most) if is_known and found else 0]
            found = _until_end(found, slot.eog)
            if found and len(found) >= self._fewest(slot):
                proposed[slot.id] = found
        self._drafts = {}
        self._asked = bool(wishes)
        if len(self._drafters) > len(entries):
            self._drafters = {index: kept for index, kept in self._drafters.items() if kept.task_id == slots[index].task_id}
        length = _common_length([len(found) for found in proposed.values()], room)
        drafted = [self._with_draft(entry, proposed.get(entry.slot, ()), length) for entry in entries]
        n_drafted = sum(len(entry.tokens) - 1 for entry in drafted)
        self.booked = tuple(_drafts_in(drafted))
        return drafted, n_drafted, tuple(wishes)

    def _with_draft(self, entry: Entry, found: Sequence[int], length: int) -> Entry:
        if not length or len(found) < length:
            return entry
        self._drafters[entry.slot].guess = []
        return entry._replace(tokens=(*entry.tokens, *found[:length]))

    def _most(self, slot: Slot, turn: int | None) -> int:
        """So that a run ends where generation one by one would: at the task's limit, at its turn's, at a full context."""
        asked = self._policy.speculative_n_max
        if slot.task is not None and slot.task.draft_max >= 0:
            asked = min(asked, slot.task.draft_max)
        left = slot.limit - slot.n_generated if slot.limit != UNLIMITED else UNLIMITED
        if turn is not None and (in_turn := turn - (slot.n_generated - slot.turn_from)) > 0:
            left = min(left, in_turn)
        return max(0, min(asked, left - 1, self._n_ctx_slot - len(slot.cells) - 2))

    def _fewest(self, slot: Slot) -> int:
        asked = self._policy.speculative_n_min if slot.task is None or slot.task.draft_min < 0 else slot.task.draft_min
        return max(1, asked)

    def _drafter(self, slot: Slot) -> Drafter:
        """Up to date with what the slot has generated."""
        drafter = self._drafters.get(slot.id)
        looks_up = self._policy.speculative is Speculative.NGRAM
        if drafter is None or drafter.task_id != slot.task_id:
            text = [*slot.cells[-WINDOW:], slot.last_token]
            index = NgramIndex(self._policy.speculative_ngram_size, text) if looks_up else None
            drafter = self._drafters[slot.id] = Drafter(slot.task_id, slot.n_generated, index)
            return drafter
        n_new = slot.n_generated - drafter.seen
        if n_new > 0:
            drafter.seen = slot.n_generated
            drafter.rest -= n_new
            if drafter.index is not None:
                new = [*slot.cells[len(slot.cells) - n_new + 1 :], slot.last_token] if n_new > 1 else [slot.last_token]
                drafter.index.extend(new)
                if drafter.guess:
                    n_right = _n_equal(drafter.guess, new)
                    drafter.learn(n_right, all_right=n_right == min(len(drafter.guess), len(new)))
                    drafter.guess = []
        return drafter

    def _looked_up(self, drafter: Drafter, most: int) -> Sequence[int]:
        """After looks in vain, the next one waits for a few tokens."""
        if drafter.rest > 0 or drafter.index is None:
            return ()
        if most < 1:
            drafter.rest = LONGEST_WAIT
            return ()
        found = drafter.index.propose(self._policy.speculative_n_max)
        if not found:
            drafter.misses += 1
            drafter.rest = min(LONGEST_WAIT, drafter.misses)
            return ()
        drafter.misses = 0
        drafter.guess = found
        if drafter.fails > 1:
            drafter.rest = min(4, drafter.fails // 2)
        return found

    def _wished(self, drafter: Drafter, price: float, most: int) -> int:
        """A draft model has to be asked: where it does not pay it is tried again, ever more rarely."""
        length = best_length(drafter.chance, price, most)
        if length:
            return length
        if drafter.rest > 0 or most < 1:
            return 0
        drafter.rest = min(LONGEST_REST, 2 << drafter.fails)
        return 1

    def _pays(self, drafter: Drafter, price: float, most: int) -> int:
        """The best length. A price that keeps likely tokens out may come from a bad moment: now and then it is tried."""
        length = best_length(drafter.chance, price, most)
        if length or drafter.chance < LIKELY:
            return length
        drafter.forgone += 1
        if drafter.forgone < TRY_AFTER:
            return 0
        drafter.forgone = 0
        return min(most, TRY_LENGTH)

    def quiet(self, slots: Sequence[Slot]) -> int:
        """For how many batches nobody looks for a draft, as far as is known now."""
        if self._drafts or self._pause:
            return self._pause
        return max(0, min((self._left(slot) for slot in slots), default=0))

    def _left(self, slot: Slot) -> int:
        drafter = self._drafters.get(slot.id)
        if drafter is None or drafter.task_id != slot.task_id:
            return 0
        return drafter.rest - (slot.n_generated - drafter.seen)

    def book(self, plan: Plan, outcome: Outcome, slots: Sequence[Slot], now: float) -> None:
        """Before the batch is settled: how long it took, and which drafts were right. Draft models' proposals are kept."""
        if outcome.drafts is not None:
            self._drafts = outcome.drafts
        if self._planned_at is not None and (plan.drafted or not self._asked):
            self._prices.note(len(plan.entries), plan.drafted, now - self._planned_at)
        self._planned_at = None
        if not plan.drafted:
            return
        booked, runs = [], outcome.runs or {}
        for index, n_drafted, _ in _drafts_in(plan.entries):
            n_accepted = max(0, len(runs.get(index, ())) - 1)
            booked.append((index, n_drafted, n_accepted))
            slot, drafter = slots[index], self._drafters.get(index)
            if index not in runs or drafter is None or drafter.task_id != slot.task_id:
                continue
            slot.n_drafted += n_drafted
            slot.n_accepted += n_accepted
            drafter.learn(n_accepted, all_right=n_accepted == n_drafted)
        self.booked = tuple(booked)

    def hold_off(self) -> None:
        """The batch found too little room with its drafts in it."""
        self._pause = PAUSE


def _drafts_in(entries: Sequence[Entry]) -> Iterator[tuple[int, int, int]]:
    return ((entry.slot, len(entry.tokens) - 1, 0) for entry in entries if len(entry.tokens) > 1)


def _until_end(tokens: Sequence[int], eog: frozenset[int]) -> Sequence[int]:
    """A token that ends the text is never drafted: nothing could come after it."""
    for place, token in enumerate(tokens):
        if token in eog:
            return tokens[:place]
    return tokens


def _n_equal(one: Sequence[int], other: Sequence[int]) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _common_length(lengths: Sequence[int], room: int) -> int:
    """The length at which most tokens are drafted; all drafts that are as long get it, and fit into `room` together."""
    rising = sorted(lengths)
    best = 0
    best_total = 0
    for length in range(1, min(rising[-1], room) + 1) if rising else ():
        total = length * (len(rising) - bisect_left(rising, length))
        if best_total < total <= room:
            best, best_total = length, total
    return best


def _median(values: Collection[float]) -> float:
    """The lower one of two."""
    return sorted(values)[(len(values) - 1) // 2]
