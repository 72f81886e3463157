"""A DFlash draft and an M-RoPE target for tests, made on the spot: real llama.cpp compute, random weights, rotation switched on.

Unlike the tiny model's, their angles are real ones: what positions do is what these models are for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from engine.tiny_tokenizer import BOS, EOS, UNK, build_vocabulary

Single = npt.NDArray[np.float32]

SECTIONS = "rope.dimension_sections"


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, of which 32 dimensions of a head rotate. `keys` go under the architecture's name, and win."""

    architecture: str
    embd: int = 128
    head: int = 64
    n_heads: int = 2
    n_rot: int = 32
    layers: int = 1
    ff: int = 64
    vocab: int = 2048
    keys: Mapping[str, int | float | Sequence[int]] = field(default_factory=dict)


def write_draft(path: Path, shards: int = 1, head: int = 64, **keys: int | float | Sequence[int]) -> Path:
    """A DFlash draft with embeddings and output of its own, fed by one layer of its target. Gives the (first) file's path.

    Half of each head rotates.
    """
    given = {"target_layers": [0], "block_size": 4, **{_dotted(key): value for key, value in keys.items()}}
    layout = Layout("dflash", head=head, n_heads=128 // head, n_rot=head // 2, keys=given)
    rng = np.random.default_rng(5)
    extra = {
        "enc.output_norm.weight": np.ones(layout.embd, np.float32),
        "fc.weight": _random(rng, layout.embd, layout.embd),
    }
    for layer in range(layout.layers):
        # Short queries: a token attends to all others, so that every angle shows in its logits.
        for part, length in (("q", 0.25), ("k", 1)):
            extra[f"blk.{layer}.attn_{part}_norm.weight"] = np.full(layout.head, length, np.float32)
    return _write(path, layout, rng, extra, shards)


def write_mrope_target(path: Path, architecture: str = "qwen2vl", **keys: int | float | Sequence[int]) -> Path:
    """The language model of a vision model, by default Qwen2-VL's, which takes four positions for each embedding."""
    given = {SECTIONS: [8, 8, 0, 0], **{_dotted(key): value for key, value in keys.items()}}
    layout = Layout(architecture, head=32, n_heads=4, keys=given)
    rng = np.random.default_rng(6)
    extra: dict[str, Single] = {}
    for layer in range(layout.layers):
        if architecture == "qwen2vl":
            extra |= {f"blk.{layer}.attn_{part}.bias": np.zeros(layout.embd, np.float32) for part in "qkv"}
        else:
            extra |= {f"blk.{layer}.attn_{part}_norm.weight": np.ones(layout.head, np.float32) for part in "qk"}
    return _write(path, layout, rng, extra, 1)


def _dotted(key: str) -> str:
    """rope__freq_base: rope.freq_base"""
    return key.replace("__", ".")


def _write(path: Path, layout: Layout, rng: np.random.Generator, extra: Mapping[str, Single], shards: int) -> Path:
    tensors = {**_tensors(layout, rng), **extra}
    per_shard = -(-len(tensors) // shards) if shards > 1 else 0
    writer = gguf.GGUFWriter(path, layout.architecture, split_max_tensors=per_shard)
    _write_sizes(writer, layout)
    _write_tokenizer(writer, layout)
    for key, value in layout.keys.items():
        _write_key(writer, f"{layout.architecture}.{key}", value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if shards == 1 else path.with_name(f"{path.stem}-00001-of-{shards:05d}.gguf")


def _write_key(writer: gguf.GGUFWriter, key: str, value: int | float | Sequence[int]) -> None:
    if isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, list(value))


def _write_sizes(writer: gguf.GGUFWriter, layout: Layout) -> None:
    writer.add_name(f"tiny {layout.architecture}")
    sizes = {
        "context_length": 4096,
        "embedding_length": layout.embd,
        "block_count": layout.layers,
        "feed_forward_length": layout.ff,
        "attention.head_count": layout.n_heads,
        "attention.head_count_kv": layout.n_heads,
        "attention.key_length": layout.head,
        "attention.value_length": layout.head,
        "rope.dimension_count": layout.n_rot,
        "vocab_size": layout.vocab,
    }
    for key, value in sizes.items():
        if key not in layout.keys:
            writer.add_uint32(f"{layout.architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-5)


def _write_tokenizer(writer: gguf.GGUFWriter, layout: Layout) -> None:
    vocabulary = build_vocabulary(layout.vocab)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(vocabulary.pieces))
    writer.add_token_scores(list(vocabulary.scores))
    writer.add_token_types([int(kind) for kind in vocabulary.types])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)


def _tensors(layout: Layout, rng: np.random.Generator) -> dict[str, Single]:
    embd, ff, width = layout.embd, layout.ff, layout.n_heads * layout.head
    tensors = {
        "token_embd.weight": _random(rng, layout.vocab, embd),
        "output.weight": _random(rng, layout.vocab, embd),
        "output_norm.weight": np.ones(embd, np.float32),
    }
    for layer in range(layout.layers):
        parts = {
            "attn_norm.weight": np.ones(embd, np.float32),
            "attn_q.weight": _random(rng, width, embd),
            "attn_k.weight": _random(rng, width, embd),
            "attn_v.weight": _random(rng, width, embd),
            "attn_output.weight": _random(rng, embd, width),
            "ffn_norm.weight": np.ones(embd, np.float32),
            "ffn_gate.weight": _random(rng, ff, embd),
            "ffn_up.weight": _random(rng, ff, embd),
            "ffn_down.weight": _random(rng, embd, ff),
        }
        tensors |= {f"blk.{layer}.{name}": tensor for name, tensor in parts.items()}
    return tensors


def _random(rng: np.random.Generator, *size: int) -> Single:
    return (rng.standard_normal(size) * 0.2).astype(np.float32)
