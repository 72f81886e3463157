"""A small llama-architecture model made on the spot: real llama.cpp compute, meaningless text, no download.

Its weights are random but lie on a grid of small integers, so that attention picks single tokens exactly and all sums come out
the same in any order. Greedy output therefore depends on the context, yet not on how a scheduler cut and mixed the batches
(floating point would otherwise flip a near tie every few thousand tokens). See docs/adr/0003.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from engine.tiny_tokenizer import BOS, CHAT_TEMPLATE, EOS, FIRST_ORDINARY, IM_END, UNK, build_vocabulary

Half = npt.NDArray[np.float16]
Single = npt.NDArray[np.float32]

SEED = 20260
DEFAULT_PATH = Path("var/models/tiny.gguf")
NAME = b"tiny-2"  # the model's name in the file; other weights get another number
OLDER = (b"tiny-1",)
HEAD_BYTES = 256  # the name is among the first of them


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model; the default costs about 1.5 ms a decode step on two cores and fills 53 MB."""

    layers: int = 2
    embd: int = 512
    head: int = 32
    ff: int = 3072
    vocab: int = 16384
    train_context: int = 131072


@dataclass(frozen=True, slots=True)
class Variant:
    """What a model of a test has beside the tiny one's weights, or in place of them."""

    architecture: str = "llama"
    numbers: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tensors: Mapping[str, Half | Single] = field(default_factory=dict)


SHAPE = Shape()
ORDINARY_TOKENS = range(FIRST_ORDINARY, SHAPE.vocab)
"""Ids that a load may draw its prompts from: no special and no byte token among them."""


def ensure_tiny_model(path: Path = DEFAULT_PATH) -> Path:
    """The path of the model, written first if it is not there or has the weights of an older version.

    Any other file is kept. Safe when several processes ask at once: the last rename wins. Raises OSError when the folder cannot
    be written.
    """
    if path.exists() and not _is_older(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    try:
        write_model(Path(temporary), SHAPE)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _is_older(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return any(name in head for name in OLDER)


def write_model(path: Path, shape: Shape, variant: Variant | None = None) -> None:
    """Write the GGUF of that shape; the same bytes at every call."""
    variant = variant or Variant()
    writer = gguf.GGUFWriter(path, variant.architecture)
    _write_sizes(writer, shape)
    _write_tokenizer(writer, shape)
    for name, number in variant.numbers.items():
        writer.add_uint32(name, number)
    for name, texts in variant.lists.items():
        writer.add_array(name, list(texts))
    for name, tensor in {**make_tensors(shape), **variant.tensors}.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_sizes(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name(NAME.decode())
    writer.add_context_length(shape.train_context)
    writer.add_embedding_length(shape.embd)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ff)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    # Angles of zero: a rotation would take the keys off the grid on which scores are exact.
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1e20)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _write_tokenizer(writer: gguf.GGUFWriter, shape: Shape) -> None:
    vocabulary = build_vocabulary(shape.vocab)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(vocabulary.pieces))
    writer.add_token_scores(list(vocabulary.scores))
    writer.add_token_types([int(kind) for kind in vocabulary.types])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(IM_END)
    writer.add_unk_token_id(UNK)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def make_tensors(shape: Shape) -> dict[str, Half | Single]:
    """All weights by GGUF name, each of shape (outputs, inputs).

    The last `head` places of an embedding are empty; the first layer's attention writes the attended token's signs there, so that
    the state stays a vector of signs and its norm stays 1.
    """
    rng = np.random.default_rng(SEED)
    free = shape.embd - shape.head
    embedding = _signs(rng, (shape.vocab, shape.embd))
    embedding[:, free:] = 0
    # Small integers over 16: the state has at most 13 bits behind the point, so sums of 512 products fit single precision.
    output = (rng.standard_normal((shape.vocab, shape.embd)).round().clip(-4, 4) / 16).astype(np.float16)
    output[:FIRST_ORDINARY] = 0  # specials and bytes never win against the best of thousands
    tensors: dict[str, Half | Single] = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(shape.embd, np.float32),
        "output.weight": output,
    }
    for layer in range(shape.layers):
        tensors |= {f"blk.{layer}.{name}": tensor for name, tensor in _layer(rng, shape, layer).items()}
    return tensors


def _layer(rng: np.random.Generator, shape: Shape, layer: int) -> dict[str, Half | Single]:
    free = shape.embd - shape.head
    # Squares of the first layer's input average free/embd, those of the later ones about 1.
    norm = np.full(shape.embd, np.sqrt(free / shape.embd) if layer == 0 else 1.0, np.float32)
    # Factor 8: two different scores lie so far apart (4 * 8 * 8 / sqrt(32) = 45) that softmax is one or exactly zero.
    query, key = (_signs(rng, (shape.head, shape.embd)) * np.float16(8) for _ in range(2))
    back = _signs(rng, (shape.embd, shape.head)) * np.float16(0.25)
    if layer == 0:
        query[:, free:] = key[:, free:] = 0
        back = np.zeros((shape.embd, shape.head), np.float16)
        back[free:] = np.eye(shape.head, dtype=np.float16)
    return {
        "attn_norm.weight": norm,
        "attn_q.weight": query,
        "attn_k.weight": key,
        "attn_v.weight": _pick(rng, shape, free if layer == 0 else shape.embd),
        "attn_output.weight": back,
        "ffn_norm.weight": np.ones(shape.embd, np.float32),
        "ffn_gate.weight": _noise(rng, (shape.ff, shape.embd)),
        "ffn_up.weight": _noise(rng, (shape.ff, shape.embd)),
        # The feed-forward part costs its time and adds nothing: its rounding would depend on the batch.
        "ffn_down.weight": np.zeros((shape.embd, shape.ff), np.float16),
    }


def _signs(rng: np.random.Generator, size: tuple[int, int]) -> Half:
    return rng.choice(np.array([-1, 1], np.float16), size)


def _noise(rng: np.random.Generator, size: tuple[int, int]) -> Half:
    return (rng.standard_normal(size) * 0.02).astype(np.float16)


def _pick(rng: np.random.Generator, shape: Shape, below: int) -> Half:
    """Rows that each copy one of the first `below` places."""
    value = np.zeros((shape.head, shape.embd), np.float16)
    value[np.arange(shape.head), rng.choice(below, shape.head, replace=False)] = 1
    return value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.tiny_model", description="Write the tiny model if it is not there.")
    parser.add_argument("--out", type=Path, default=DEFAULT_PATH)
    print(ensure_tiny_model(parser.parse_args().out))


if __name__ == "__main__":
    main()
