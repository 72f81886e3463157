"""Models and adapters for tests, made on the spot: a smaller tiny model, with what a test needs added; LoRA adapters for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np

from engine.tiny_model import Shape, Variant, make_tensors, write_model

SMALL = Shape(embd=128, ff=64, vocab=2048, train_context=8192)
"""Exact as the tiny model is, and a hundred times smaller."""
FIM_NAMES = ("fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep")
FIM = {name: SMALL.vocab - 5 + place for place, name in enumerate(FIM_NAMES)}


def write_small_model(path: Path, shape: Shape = SMALL, variant: Variant | None = None) -> Path:
    write_model(path, shape, variant)
    return path


def write_ranking_model(path: Path, shape: Shape = SMALL) -> Path:
    """A decoder with a head that makes a score of the last token's state, in the form of Qwen3's rerankers."""
    rng = np.random.default_rng(7)
    norms = {f"blk.{n}.attn_{part}_norm.weight": np.ones(shape.head, np.float32) for n in range(shape.layers) for part in "qk"}
    head = (rng.standard_normal((2, shape.embd)) / 8).astype(np.float32)
    labels = {"qwen3.classifier.output_labels": ["yes", "no"]}
    variant = Variant("qwen3", {"qwen3.pooling_type": 4}, labels, {**norms, "cls.output.weight": head})
    return write_small_model(path, shape, variant)


def write_infill_model(path: Path, *, repository: bool = True, shape: Shape = SMALL) -> Path:
    """The last tokens of the vocabulary mark a gap; with `repository` also the files around it."""
    names = FIM_NAMES if repository else FIM_NAMES[:3]
    return write_small_model(path, shape, Variant(numbers={f"tokenizer.ggml.{name}_token_id": FIM[name] for name in names}))


def write_lora(path: Path, flipped: Sequence[int], shape: Shape = SMALL) -> Path:
    """An adapter that turns the sign of some values (0 to head - 1) which the first layer's attention passes on.

    At a scale of 1 the state stays a vector of signs, so outputs stay as exact as the tiny model's. The second layer's keys and
    values change with it: cells computed under the adapter are of no use without it.
    """
    rows = list(flipped)
    picks = make_tensors(shape)["blk.0.attn_v.weight"][rows].astype(np.float32)
    back = np.zeros((shape.head, len(rows)), np.float32)
    back[rows, np.arange(len(rows))] = -2
    _write(path, "llama", lambda writer: _describe_lora(writer, len(rows)), picks, back)
    return path


def write_alora(path: Path, shape: Shape = SMALL) -> Path:
    """An adapter that begins to work behind a token within the prompt."""

    def describe(writer: gguf.GGUFWriter) -> None:
        _describe_lora(writer, 1)
        kinds = gguf.GGUFValueType
        writer.add_key_value("adapter.alora.invocation_tokens", [300], kinds.ARRAY, sub_type=kinds.UINT32)

    _write(path, "llama", describe, np.zeros((1, shape.embd), np.float32), np.zeros((shape.head, 1), np.float32))
    return path


def _describe_lora(writer: gguf.GGUFWriter, rank: int) -> None:
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))  # a scale of alpha / rank: 1
    writer.add_string("adapter.lora.task_name", "flip")


def _write(
    path: Path,
    architecture: str,
    describe: Callable[[gguf.GGUFWriter], None],
    lora_a: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    lora_b: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    describe(writer)
    writer.add_tensor("blk.0.attn_v.weight.lora_a", lora_a)
    writer.add_tensor("blk.0.attn_v.weight.lora_b", lora_b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
