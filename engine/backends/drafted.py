"""Batches with drafted tokens: logits behind each of them, and draws that go on as long as the drafts are right."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

from engine.backends.finite import NOT_FINITE, NotFinite, Sieve
from engine.scheduler.plan import Entry, Outcome, TokenProbs

Probs = Callable[[int, Sequence[float], int], TokenProbs]
NOT_TAKEN_BACK = "this model's memory cannot take drafted tokens back"


class DraftCheck:
    """Checks drafts with each slot's own sampler, which so takes in exactly the tokens that it would have drawn alone."""

    def __init__(
        self, context: Any, batch: Any, samplers: MutableSequence[Any], n_probs: Sequence[int], probs: Probs, sieve: Sieve
    ) -> None:
        self._context, self._batch, self._samplers, self._sieve = context, batch, samplers, sieve
        self._n_probs, self._probs = n_probs, probs

    def fill(self, entries: Sequence[Entry], sequences: Sequence[list[int]], errors: dict[int, str]) -> list[tuple[int, Entry]]:
        """The entries with their first rows; logits are wanted for every token. Slots with an error stay out."""
        batch = self._batch
        batch.clear()
        add, row, rows = batch.add, 0, []
        for entry in entries:
            if entry.slot in errors:
                continue
            rows.append((row, entry))
            for pos, token in enumerate(entry.tokens, entry.pos):
                add(token, pos, sequences[entry.slot], True)
            row += len(entry.tokens)
        return rows

    def draw(self, rows: Sequence[tuple[int, Entry]], errors: dict[int, str], eog: frozenset[int]) -> Outcome:
        """What each slot drew; the cells of what it did not draw are gone."""
        runs: dict[int, tuple[int, ...]] = {}
        tokens: dict[int, int] = {}
        probs: dict[int, list[TokenProbs]] = {}
        for row, entry in rows:
            try:
                run = self._run(row, entry, probs)
            except NotFinite as error:
                errors[entry.slot] = str(error)
            except (AttributeError, ValueError, RuntimeError) as error:
                errors[entry.slot] = f"no token could be drawn: {error}"
            else:
                self._take_back(entry, len(run), errors)
                if len(entry.tokens) > 1:
                    runs[entry.slot] = tuple(run)
                else:
                    tokens[entry.slot] = run[0]
        self._look_again(rows, runs, tokens, errors, eog)
        for slot in errors:
            runs.pop(slot, None)
            probs.pop(slot, None)
        single = {slot: found[0] for slot, found in probs.items() if slot not in runs}
        listed = {slot: found for slot, found in probs.items() if slot in runs}
        return Outcome(tokens, errors, single if any(self._n_probs) else None, runs=runs, run_probs=listed or None)

    def _run(self, row: int, entry: Entry, probs: dict[int, list[TokenProbs]]) -> list[int]:
        slot = entry.slot
        run: list[int] = []
        for place, token in enumerate(entry.tokens):
            if place and token != run[-1]:
                break
            drawn: int = self._samplers[slot].sample(self._context, row + place)
            run.append(drawn)
            if self._n_probs[slot]:
                found = self._probs(slot, self._context.get_logits_ith(row + place), drawn)
                if math.isnan(found.logprob):
                    raise NotFinite
                probs.setdefault(slot, []).append(found)
        return run

    def _take_back(self, entry: Entry, n_right: int, errors: dict[int, str]) -> None:
        if n_right == len(entry.tokens) or self._context.memory_seq_rm(entry.slot, entry.pos + n_right, -1):
            return
        self._context.memory_seq_rm(entry.slot, -1, -1)
        errors[entry.slot] = NOT_TAKEN_BACK

    def _look_again(
        self,
        rows: Sequence[tuple[int, Entry]],
        runs: dict[int, tuple[int, ...]],
        tokens: dict[int, int],
        errors: dict[int, str],
        eog: frozenset[int],
    ) -> None:
        """At the last row that each slot drew from: what is no number before it makes it none too."""
        outputs, drawn, doubtful = [], {}, NOT_FINITE in errors.values()
        for row, entry in rows:
            run = runs.get(entry.slot) or ((tokens[entry.slot],) if entry.slot in tokens else ())
            if run and entry.slot not in errors:
                last = entry._replace(tokens=entry.tokens[: len(run)])
                outputs.append((row + len(run) - 1, last))
                drawn[entry.slot] = run[-1]
                doubtful = doubtful or run[-1] == last.tokens[-1] or run[-1] in eog
        if doubtful:
            self._sieve.look_again(outputs, drawn, errors)
            for slot in errors:
                tokens.pop(slot, None)
