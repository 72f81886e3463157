"""llama.cpp through cyllama: one context, one sequence for each slot, one sampler chain for each task.

Beside `loading`, `modes`, `samplers`, `in_graph`, `draft_model` and `finite` the only module that imports the binding. Defaults
are llama-server's, so that both compare on equal terms.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cyllama.llama import llama_cpp

from engine.backends import saved_slots
from engine.backends.base import BackendError, BackendOptions, DraftInfo, KvFull
from engine.backends.draft_model import DraftModel, why_unfit
from engine.backends.drafted import DraftCheck
from engine.backends.finite import NOT_FINITE, CheckedSampler, NotFinite, Sieve, all_finite
from engine.backends.in_graph import InGraph
from engine.backends.leftover import Leftover
from engine.backends.loading import describe, load_draft, load_model, make_context
from engine.backends.modes import Modes, check_rank_head, describe_adapter, load_adapters
from engine.backends.samplers import SamplerContext, check_grammar, make_sampler, schema_grammar, spells_bytes, token_probs
from engine.backends.vocabulary import Vocabulary
from engine.scheduler.plan import Entry, EntryKind, Outcome, Plan, Shift, Start, TokenProbs, Vectors

_Output = tuple[int, Entry]  # a batch row that gets sampled for the entry's slot and for those it is copied to


class LlamaBackend:
    """See `Backend`. Raises ModelError when the file cannot be served."""

    def __init__(self, model_path: Path, options: BackendOptions) -> None:
        # A Python log callback would be called without the GIL from inside a decode; the binding's own no-op is safe there.
        llama_cpp.disable_logging()
        llama_cpp.llama_backend_init()
        self._draft: llama_cpp.LlamaModel | None = None
        draft: DraftInfo | None = None
        if options.draft is not None:
            self._draft, draft = load_draft(model_path, options.draft)
        self._model = load_model(model_path)
        if options.pooling == "rank":
            check_rank_head(model_path)
        self._vocab = self._model.get_vocab()
        adapters = load_adapters(self._model, options.lora)
        self._context = make_context(self._model, options)
        found = tuple(map(describe_adapter, options.lora, adapters))
        self.info = replace(describe(model_path, self._model, self._vocab, self._context, options), lora=found, draft=draft)
        self._modes = Modes(self._context, adapters, self.info.pooling, embeddings=options.embeddings)
        self._batch = llama_cpp.LlamaBatch(n_tokens=self._context.n_batch, embd=0, n_seq_max=1)
        self._sequences = [[slot] for slot in range(options.n_slots)]
        self._samplers: list[llama_cpp.LlamaSampler | CheckedSampler | None] = [None] * options.n_slots
        self._words = Vocabulary(self._vocab, self.info.n_vocab)
        spells, info = spells_bytes(self._words.texts), self.info
        self._sampling = SamplerContext(self._vocab, info.n_vocab, info.eog, info.n_ctx_slot, spells)
        self._in_graph = InGraph(self._context, self._sampling)
        unified, in_graph = info.kv_mode == "unified", not self._in_graph.is_off
        self._sieve = Sieve(self._context, self._samplers, info.n_vocab, info.eog, unified=unified, in_graph=in_graph)
        self._n_probs = [0] * options.n_slots
        self._leftovers: list[Leftover | None] = [None] * options.n_slots
        self._wants_probs = False
        self._draft_model: DraftModel | None = None
        if self._draft is not None:
            self._open_draft(self._draft, options)
        self._check = DraftCheck(self._context, self._batch, self._samplers, self._n_probs, self._probs_of, self._sieve)

    def _open_draft(self, model: llama_cpp.LlamaModel, options: BackendOptions) -> None:
        """A draft model that cannot draft for this target stays loaded and does nothing; the policy `draft` says why."""
        why = why_unfit(model, self._words.texts)
        if not why:
            self._draft_model = DraftModel(model, options, self.info.eog, self.info.n_vocab)
            self.info = replace(self.info, draft_model=True)
        elif self.info.draft is not None:
            logging.getLogger("engine").warning("Nothing is drafted by %s: %s", self.info.draft.path, why)
            self.info = replace(self.info, draft_unfit=why)

    def run(self, plan: Plan) -> Outcome:
        if self._draft_model is None:
            return self._run(plan)
        self._draft_model.follow(plan)
        outcome = self._run(plan)
        if plan.wishes:
            outcome.drafts = self._draft_model.draft(plan, outcome)
        return outcome

    def _run(self, plan: Plan) -> Outcome:
        errors: dict[int, str] = {}
        if plan.group is not self._modes.group:
            self._modes.enter(plan.group)
        if plan.shifts:
            self._shift(plan.shifts, errors)
        for start in plan.starts:
            self._start(start, errors)
        for start in plan.child_starts:
            self._attach_sampler(start, errors)
        if plan.drafted:
            return self._run_drafted(plan, errors)
        outputs = self._fill(plan.entries, errors)
        if not outputs and not self._batch.n_tokens:
            return Outcome(errors=errors)
        self._decode()
        if self._modes.makes_vectors:
            outcome = Outcome(errors=errors, vectors=self._vectors(outputs, errors))
        else:
            tokens = self._sample(outputs, errors)
            outcome = Outcome(tokens, errors, self._probabilities(outputs, tokens, errors) if self._wants_probs else None)
        return self._sieved(plan, outcome) if errors else outcome

    def _run_drafted(self, plan: Plan, errors: dict[int, str]) -> Outcome:
        for entry in plan.entries:
            if len(entry.tokens) > 1:
                self._draw_outside(entry.slot)
        rows = self._check.fill(plan.entries, self._sequences, errors)
        if not rows:
            return Outcome(errors=errors)
        self._decode()
        outcome = self._check.draw(rows, errors, self.info.eog)
        return self._sieved(plan, outcome) if errors else outcome

    def _draw_outside(self, slot: int) -> None:
        if (chain := self._in_graph.outside_for_draft(slot)) is not None:
            self._samplers[slot] = chain

    def _shift(self, shifts: Sequence[Shift], errors: dict[int, str]) -> None:
        context = self._context
        for slot, keep, discard in shifts:
            if context.memory_seq_rm(slot, keep, keep + discard):
                context.memory_seq_add(slot, keep + discard, -1, -discard)
            else:
                self.clear(slot)
                errors[slot] = "this model's memory cannot forget a part of a sequence"

    def _start(self, start: Start, errors: dict[int, str]) -> None:
        if self._context.memory_seq_rm(start.slot, start.n_past, -1):
            self._attach_sampler(start, errors)
            return
        self.clear(start.slot)
        errors[start.slot] = f"this model's memory cannot keep a part of a sequence ({start.n_past} tokens were to be kept)"

    def _attach_sampler(self, start: Start, errors: dict[int, str]) -> None:
        try:
            chain = self._in_graph.enter(start) or make_sampler(start.task.sampling, self._sampling, start.task.prompt)
            always = bool(start.task.sampling.grammar)
            self._samplers[start.slot] = self._sieve.checked(chain, start.slot, always=always)
            self._n_probs[start.slot] = start.task.sampling.n_probs
            self._leftovers[start.slot] = self._leftover(start) if start.task.sampling.post_sampling_probs else None
            self._wants_probs = any(self._n_probs)
        except (ValueError, OverflowError) as error:
            self._samplers[start.slot] = None  # nor the former task's
            errors[start.slot] = f"the sampling parameters cannot be used: {error}"

    def _fill(self, entries: Sequence[Entry], errors: dict[int, str]) -> list[_Output]:
        """Write the entries into the batch; slots with an error stay out."""
        batch, sequences = self._batch, self._sequences
        batch.clear()
        add = batch.add  # the binding's whole-run calls start every run at position 0 or in sequence 0
        if entries and not errors and entries[-1].kind is EntryKind.GENERATION:  # decode tokens come first: there are no others
            for slot, _, _, tokens, pos, _, _ in entries:
                add(tokens[0], pos, sequences[slot], True)
            return list(enumerate(entries))
        row = 0
        outputs: list[_Output] = []
        for entry in mergeable(entries):
            if entry.slot in errors:
                continue
            sequence = sequences[entry.slot]
            try:
                for pos, token in enumerate(entry.tokens, entry.pos):
                    add(token, pos, sequence, False)
            except (IndexError, OverflowError, TypeError) as error:
                raise BackendError(f"slot {entry.slot}'s tokens do not fit the batch: {error}") from error
            row += len(entry.tokens)
            if entry.output:
                batch.set_last_logits_to_true()
                outputs.append((row - 1, entry))
        return outputs

    def _decode(self) -> None:
        try:
            self._context.decode(self._batch)
        except ValueError as error:
            if "KV slot" in str(error):
                raise KvFull("Context size has been exceeded.") from error
            raise BackendError(f"llama.cpp refused the batch: {error}") from error
        except (RuntimeError, InterruptedError) as error:
            raise BackendError(f"llama.cpp failed while it computed the batch: {error}") from error

    def _copy(self, parent: int, child: int) -> None:
        self._context.memory_seq_rm(child, -1, -1)
        self._context.memory_seq_cp(parent, child, -1, -1)

    def _sample(self, outputs: Sequence[_Output], errors: dict[int, str]) -> dict[int, int]:
        tokens: dict[int, int] = {}
        samplers, context, eog, doubtful = self._samplers, self._context, self.info.eog, False
        try:
            for row, entry in outputs:
                if entry.copy_to:
                    break
                sampler = samplers[entry.slot]
                token = tokens[entry.slot] = sampler.sample(context, row)  # type: ignore[union-attr]  # the rare None is caught below
                if token == entry.tokens[-1] or token in eog:
                    doubtful = True
            else:
                if doubtful:
                    self._sieve.look_again(outputs, tokens, errors)
                return tokens
        except (AttributeError, ValueError, RuntimeError):
            pass
        self._sample_with_care(outputs, tokens, errors)
        self._sieve.look_again(outputs, tokens, errors)
        return tokens

    def _vectors(self, outputs: Sequence[_Output], errors: dict[int, str]) -> dict[int, Vectors]:
        vectors = self._modes.vectors(outputs)
        errors.update((slot, NOT_FINITE) for slot, rows in vectors.items() if not all_finite(rows))
        return vectors

    def _sieved(self, plan: Plan, outcome: Outcome) -> Outcome:
        """The outcome without what came from rows that are no numbers, for a batch with an error in it."""
        lost = self._sieve.drop(plan.entries, outcome.errors, lambda entry: self._run_alone(entry, outcome))
        return replace(outcome, lost=lost) if lost else outcome

    def _run_alone(self, entry: Entry, outcome: Outcome) -> None:
        """The same entry with nothing beside it; its slots must have no error."""
        outputs = self._fill([entry], {})
        try:
            self._decode()
        except BackendError as error:
            outcome.errors.update((slot, str(error)) for slot in (entry.slot, *entry.copy_to))
            return
        if outcome.vectors is not None:
            outcome.vectors.update(self._vectors(outputs, outcome.errors))
            return
        self._sample_with_care(outputs, outcome.tokens, outcome.errors)
        self._sieve.look_again(outputs, outcome.tokens, outcome.errors, all_doubtful=True)
        if outcome.probs is not None:
            outcome.probs.update(self._probabilities(outputs, outcome.tokens, outcome.errors))

    def _sample_with_care(self, outputs: Sequence[_Output], tokens: dict[int, int], errors: dict[int, str]) -> None:
        """Children get their cells and a token each; a slot that cannot draw has an error of its own. Goes on behind `tokens`."""
        for row, entry in outputs:
            for child in entry.copy_to:
                self._copy(entry.slot, child)
            for slot in (entry.slot, *entry.copy_to):
                if slot in tokens or slot in errors:
                    continue
                sampler = self._samplers[slot]
                if sampler is None:
                    errors[slot] = "this slot has no sampler: its task was never started"
                    continue
                try:
                    tokens[slot] = sampler.sample(self._context, row)
                except NotFinite as error:
                    errors[slot] = str(error)
                except (ValueError, RuntimeError) as error:
                    errors[slot] = f"no token could be drawn: {error}"

    def _probabilities(self, outputs: Sequence[_Output], tokens: dict[int, int], errors: dict[int, str]) -> dict[int, TokenProbs]:
        """From the row as the model made it, before any sampler, as llama-server does."""
        found: dict[int, TokenProbs] = {}
        for row, entry in outputs:
            wanted = [slot for slot in (entry.slot, *entry.copy_to) if self._n_probs[slot] and slot in tokens]
            if wanted:
                logits = self._context.get_logits_ith(row)
                for slot in wanted:
                    found[slot] = self._probs_of(slot, logits, tokens[slot])
                    if math.isnan(found[slot].logprob):
                        del found[slot], tokens[slot]
                        errors[slot] = NOT_FINITE
        return found

    def _leftover(self, start: Start) -> Leftover:
        return Leftover(start.task.sampling, self.info.eog, start.task.prompt, self.info.n_ctx_slot)

    def _probs_of(self, slot: int, logits: Sequence[float], token: int) -> TokenProbs:
        leftover, n = self._leftovers[slot], self._n_probs[slot]
        return token_probs(logits, token, n) if leftover is None else leftover.probs(logits, token, n)

    def clear(self, slot: int) -> None:
        self._context.memory_seq_rm(slot, -1, -1)
        if self._draft_model is not None:
            self._draft_model.forget(slot)

    def save(self, slot: int, tokens: Sequence[int], path: Path) -> None:
        saved_slots.save(self._context, slot, tokens, path)

    def restore(self, slot: int, path: Path) -> list[int]:
        try:
            return saved_slots.restore(self._context, slot, path, self.info.n_ctx_slot)
        except BackendError:
            self.clear(slot)
            raise

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
        return self._words.tokenize(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self._words.detokenize(tokens)

    def check_grammar(self, grammar: str) -> None:
        check_grammar(grammar, self._sampling)

    def schema_grammar(self, schema: dict[str, Any]) -> str:
        return schema_grammar(schema)

    def piece(self, token: int) -> bytes:
        return self._words.piece(token)

    def close(self) -> None:
        self._in_graph.close()
        for sampler in self._samplers:
            if sampler is not None:
                sampler.close()
        self._samplers[:] = [None] * len(self._samplers)
        self._sampling.shared.clear()
        self._sieve.close()
        self._batch.close()
        self._context.close()
        self._model.close()
        if self._draft_model is not None:
            self._draft_model.close()
        if self._draft is not None:
            self._draft.close()


def mergeable(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a batch in the order in which llama.cpp computes the most of them together.

    Under split KV it puts tokens of several sequences into one sub-batch only where their ids ascend, so slots 1 and then 0 would
    cost one graph more. Who has how many tokens is settled by then, and all of a batch ends at once: its order is free.
    """
    return sorted(entries, key=lambda entry: (entry.kind is EntryKind.PROMPT, entry.slot))
