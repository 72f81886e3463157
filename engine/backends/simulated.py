"""A backend that computes nothing: time passes by a cost model, tokens follow from the slot's history.

For experiments at sizes that the machine could not compute, and for tests that need hours of traffic in milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backends.base import BackendError, BackendOptions, FimTokens, KvFull, LoraAdapter, ModelInfo
from engine.clock import Clock
from engine.scheduler.plan import Entry, EntryKind, Outcome, Plan, TokenProbs, Vectors
from engine.scheduler.task import VECTOR_TYPES, Task
from engine.tiny_tokenizer import CHAT_TEMPLATE, WORDS

BOS, EOS = 256, 257
FIRST_WORD = 258
FIM_TEXTS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
FIM = FimTokens(*(FIRST_WORD + len(WORDS) + place for place in range(len(FIM_TEXTS))))
N_VOCAB = FIRST_WORD + len(WORDS) + len(FIM_TEXTS)
TRAIN_CONTEXT = 1_048_576
CELLS_PADDING = 256
N_EMBD = 8
HASH_MASK = (1 << 64) - 1

_TEXTS: tuple[bytes, ...] = (
    *(bytes([value]) for value in range(256)),
    b"<s>",
    b"</s>",
    *(f" {word}".encode() for word in WORDS),
    *(text.encode() for text in FIM_TEXTS),
)
_WORD_IDS = {f" {word}": FIRST_WORD + index for index, word in enumerate(WORDS)}
_SPECIAL_IDS = {"<s>": BOS, "</s>": EOS}
_PARTS = re.compile(r"</?s>| [a-z]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a batch costs, in seconds: `batch` once, alpha + beta * depth for each prompt token at that depth in its slot, and
    decode + beta * depth for each generated one; a drafted token costs what one of a prompt does.

    The defaults are fitted to a published run of a 35B mixture model on a laptop (1044 prompt tokens/s at depth 0).
    """

    alpha: float = 0.957e-3
    beta: float = 2.74e-8
    batch: float = 0.0
    decode: float = 15e-3

    def entry_s(self, entry: Entry) -> float:
        n = len(entry.tokens)
        first = self.alpha if entry.kind is EntryKind.PROMPT else self.decode
        return first + (n - 1) * self.alpha + self.beta * (n * entry.pos + n * (n - 1) / 2)

    def plan_s(self, plan: Plan) -> float:
        return self.batch + sum(self.entry_s(entry) for entry in plan.entries)


class SimulatedBackend:
    """See `Backend`. Copied cells count for each slot that holds them, under unified KV too."""

    def __init__(self, options: BackendOptions, cost: CostModel, clock: Clock) -> None:
        self._cost, self._clock = cost, clock
        self._cells: list[list[int]] = [[] for _ in range(options.n_slots)]  # hash of the history up to each position
        self._seeds = [0] * options.n_slots
        self._n_probs = [0] * options.n_slots
        self.info = _describe(options)

    def run(self, plan: Plan) -> Outcome:
        for slot, keep, discard in plan.shifts:
            del self._cells[slot][keep : keep + discard]
        for start in plan.starts:
            del self._cells[start.slot][start.n_past :]
        for start in plan.starts + plan.child_starts:
            self._seeds[start.slot] = _seed(start.task)
            self._n_probs[start.slot] = start.task.sampling.n_probs
        if not plan.entries:
            return Outcome()
        self._check(plan.entries)
        self._clock.sleep(self._cost.plan_s(plan))
        if plan.group is not None and plan.group.type in VECTOR_TYPES:
            return Outcome(vectors=self._vectors(plan.entries))
        tokens: dict[int, int] = {}
        runs: dict[int, tuple[int, ...]] = {}
        for entry in plan.entries:
            if entry.kind is EntryKind.GENERATION and len(entry.tokens) > 1:
                runs[entry.slot] = self._checked(entry)
                continue
            self._write(entry)
            for slot in (entry.slot, *entry.copy_to) if entry.output else ():
                tokens[slot] = self._draw(slot)
        if not any(self._n_probs):
            return Outcome(tokens, runs=runs or None)
        probs = {slot: _certain(token) for slot, token in tokens.items() if self._n_probs[slot]}
        run_probs = {slot: [_certain(token) for token in run] for slot, run in runs.items() if self._n_probs[slot]}
        return Outcome(tokens, probs=probs, runs=runs or None, run_probs=run_probs or None)

    def _draw(self, slot: int) -> int:
        return FIRST_WORD + _mix(self._cells[slot][-1] ^ self._seeds[slot]) % len(WORDS)

    def _checked(self, entry: Entry) -> tuple[int, ...]:
        """The tokens drawn behind each of the entry's, until a drafted one differs; it and those behind it are not kept."""
        run: list[int] = []
        for place, token in enumerate(entry.tokens):
            if place and token != run[-1]:
                break
            self._write(entry._replace(tokens=(token,)))
            run.append(self._draw(entry.slot))
        return tuple(run)

    def _vectors(self, entries: Sequence[Entry]) -> dict[int, Vectors]:
        """They follow from the prompt alone: a vector for it, or with pooling "none" one for each of its tokens."""
        found: dict[int, Vectors] = {}
        size = 1 if self.info.pooling == "rank" else N_EMBD
        for entry in entries:
            self._write(entry)
            cells = self._cells[entry.slot]
            if entry.output:
                states = cells[entry.pos :] if self.info.pooling == "none" else cells[-1:]
                found[entry.slot] = tuple(_vector(state, size) for state in states)
        return found

    def _check(self, entries: Sequence[Entry]) -> None:
        """Refuse a batch before anything of it is written, as llama.cpp does."""
        held = [len(cells) for cells in self._cells]
        for entry in entries:
            if entry.pos != held[entry.slot]:
                raise BackendError(f"slot {entry.slot} holds {held[entry.slot]} tokens, its entry begins at {entry.pos}")
            if not all(0 <= token < N_VOCAB for token in entry.tokens):
                raise BackendError(f"slot {entry.slot}'s entry has a token outside the vocabulary of {N_VOCAB}")
            for slot in entry.copy_to:
                held[slot] = held[entry.slot] + len(entry.tokens)
            held[entry.slot] += len(entry.tokens)
        full = sum(held) > self.info.n_ctx if self.info.kv_mode == "unified" else max(held) > self.info.n_ctx_slot
        if full:
            raise KvFull("Context size has been exceeded.")

    def _write(self, entry: Entry) -> None:
        cells = self._cells[entry.slot]
        state = cells[-1] if cells else 0
        for token in entry.tokens:
            state = _mix(state ^ (token + 1))
            cells.append(state)
        for slot in entry.copy_to:
            self._cells[slot] = cells.copy()

    def clear(self, slot: int) -> None:
        self._cells[slot].clear()

    def save(self, slot: int, tokens: Sequence[int], path: Path) -> None:
        """The tokens alone: everything else follows from them."""
        try:
            path.write_text(json.dumps(list(tokens)), encoding="utf-8")
        except OSError as error:
            raise BackendError(f"the slot could not be saved: {error}") from error

    def restore(self, slot: int, path: Path) -> list[int]:
        self.clear(slot)
        try:
            tokens: list[int] = json.loads(path.read_text(encoding="utf-8"))
            known = [_known(token) for token in tokens]
        except (OSError, ValueError, TypeError) as error:
            raise BackendError("the file is no saved slot of this model, or there is no room for it in the KV cache") from error
        self._write(Entry(slot, -1, EntryKind.PROMPT, known, 0, False))
        return known

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
        return [BOS, *_ids(text, parse_special)] if add_special else list(_ids(text, parse_special))

    def detokenize(self, tokens: Sequence[int]) -> str:
        return b"".join(_TEXTS[_known(token)] for token in tokens).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        return b"" if token in (BOS, EOS, FIM.prefix, FIM.suffix, FIM.middle) else _TEXTS[_known(token)]

    def check_grammar(self, grammar: str) -> None:
        raise ValueError("the cost model's tokens follow no grammar")

    def schema_grammar(self, schema: dict[str, Any]) -> str:
        raise ValueError("the cost model's tokens follow no schema")

    def close(self) -> None:
        for cells in self._cells:
            cells.clear()


def _ids(text: str, parse_special: bool) -> Iterator[int]:
    for part in _PARTS.findall(text):
        if parse_special and part in _SPECIAL_IDS:
            yield _SPECIAL_IDS[part]
        elif part in _WORD_IDS:
            yield _WORD_IDS[part]
        else:
            yield from part.encode("utf-8", "surrogatepass")


def _known(token: int) -> int:
    if 0 <= token < N_VOCAB:
        return token
    raise ValueError(f"token {token} is not in the vocabulary of {N_VOCAB}")


def _vector(state: int, size: int) -> tuple[float, ...]:
    return tuple(_mix(state + place) / HASH_MASK * 2 - 1 for place in range(size))


def _certain(token: int) -> TokenProbs:
    return TokenProbs(token, 0.0, ((token, 0.0),))


def _seed(task: Task) -> int:
    """Greedy tasks and tasks without a seed get the same tokens for the same history and adapters."""
    sampling = task.sampling
    seed = 0 if sampling.temperature <= 0 or sampling.seed is None else _mix(sampling.seed + 1)
    for adapter, scale in task.group.lora:
        seed = _mix(seed ^ (adapter + 1) ^ int(scale * 1e6))
    return seed


def _mix(value: int) -> int:
    """Spread a 64-bit value: the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & HASH_MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & HASH_MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & HASH_MASK
    return value ^ (value >> 31)


def _describe(options: BackendOptions) -> ModelInfo:
    """Divide and pad the context as llama.cpp does."""
    total = options.n_ctx or TRAIN_CONTEXT
    each = total if options.kv_mode == "unified" else total // options.n_slots
    each = -(-each // CELLS_PADDING) * CELLS_PADDING
    return ModelInfo(
        name="simulated",
        path="",
        build="cost model",
        backend="simulated",
        kv_mode=options.kv_mode,
        n_ctx=each if options.kv_mode == "unified" else each * options.n_slots,
        n_ctx_slot=min(each, TRAIN_CONTEXT),
        n_ctx_train=TRAIN_CONTEXT,
        n_vocab=N_VOCAB,
        n_batch=max(options.n_batch, options.n_slots),
        n_ubatch=options.n_ubatch,
        n_threads=options.n_threads or 1,
        n_params=0,
        size_bytes=0,
        can_trim=True,
        can_shift=True,
        bos=BOS,
        add_bos=True,
        bos_text="<s>",
        eos_text="</s>",
        eog=frozenset({EOS}),
        chat_template=CHAT_TEMPLATE,
        ftype="none",
        pooling=(options.pooling or "last") if options.embeddings else "none",
        eos=EOS,
        fim=FIM,
        lora=tuple(LoraAdapter(str(path)) for path in options.lora),
    )
