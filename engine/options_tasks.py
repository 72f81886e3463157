"""Flags for what tasks there are beside plain completions: LoRA adapters, embeddings, reranking, infill, context shift."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from engine.backends.base import Pooling
from engine.options_env import Env, WholeNumbers

POOLINGS: tuple[str, ...] = get_args(Pooling)


@dataclass(frozen=True, slots=True)
class LoraFile:
    """An adapter to load, and the scale that requests without a list of their own get."""

    path: Path
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """`pooling` None: what the model's file says. `n_keep` tokens stay at a context shift, -1 the whole prompt."""

    lora: tuple[LoraFile, ...] = ()
    embeddings: bool = False
    reranking: bool = False
    pooling: Pooling | None = None
    context_shift: bool = False
    n_keep: int = 0
    spm_infill: bool = False


class _AddLora(argparse.Action):
    """Appends the files of one flag. Ids are places on the command line, over both flags, so both gather in one list."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        read = _scaled if self.const else _plain
        try:
            files = [read(item) for item in next(csv.reader([values]), [])]
        except ValueError as exc:
            raise argparse.ArgumentError(self, str(exc)) from None
        if not files:
            raise argparse.ArgumentError(self, "it names no file")
        namespace.lora = [*namespace.lora, *files]


def _plain(item: str) -> LoraFile:
    if not item:
        raise ValueError("a name between commas is empty")
    return LoraFile(Path(item))


def _scaled(item: str) -> LoraFile:
    path, colon, scale = item.rpartition(":")
    try:
        value = float(scale)
    except ValueError:
        value = math.nan
    if not colon or not path or not math.isfinite(value):
        raise ValueError(f"{item!r} is not of the form FILE:SCALE")
    return LoraFile(Path(path), value)


def add_task_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("adapters, embeddings, context shift")
    add, whole = group.add_argument, WholeNumbers(group, env)
    parser.set_defaults(lora=[])
    for flag, shape, scaled in (("--lora", "FILE[,FILE]", False), ("--lora-scaled", "FILE:SCALE[,...]", True)):
        text = "LoRA adapters to load, with the scale they begin with" if scaled else "LoRA adapters to load"
        add(flag, action=_AddLora, const=scaled, default=argparse.SUPPRESS, metavar=shape, help=text)
    add("--lora-init-without-apply", action="store_true", help="adapters begin with a scale of 0, see POST /lora-adapters")
    embeddings, rerank = bool(env.switch("LLAMA_ARG_EMBEDDINGS")), bool(env.switch("LLAMA_ARG_RERANKING"))
    add("--embedding", "--embeddings", dest="embeddings", action="store_true", default=embeddings, help="serve embeddings")
    add("--rerank", "--reranking", dest="reranking", action="store_true", default=rerank, help="serve reranking")
    text = f"how the vectors of a prompt become one: {', '.join(POOLINGS)}; without it what the model's file says"
    add("--pooling", choices=POOLINGS, default=env.text("LLAMA_ARG_POOLING", "") or None, help=text)
    shift = bool(env.switch("LLAMA_ARG_CONTEXT_SHIFT"))
    text = "a full slot forgets a part of its text and goes on"
    add("--context-shift", dest="context_shift", action="store_true", default=shift, help=text)
    text = "a full slot ends its task (default)"
    add("--no-context-shift", dest="context_shift", action="store_false", help=text)
    text = "tokens of the prompt that stay at a context shift; -1: all (default 0)"
    whole.add("--keep", env="", default=0, low=-1, text=text)
    add("--spm-infill", action="store_true", help="infill puts the suffix first, as some models want it")


def tasks_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> TaskOptions:
    if args.pooling is not None and args.pooling not in POOLINGS:
        parser.error(f"argument --pooling: {args.pooling!r} is not one of {', '.join(POOLINGS)}")
    if args.reranking and args.pooling not in (None, "rank"):
        parser.error(f"argument --rerank: it pools by rank, and --pooling asks for {args.pooling}")
    files: Sequence[LoraFile] = args.lora
    if args.lora_init_without_apply:
        files = [LoraFile(file.path, 0.0) for file in files]
    return TaskOptions(
        lora=tuple(files),
        embeddings=args.embeddings or args.reranking,
        reranking=args.reranking,
        pooling="rank" if args.reranking else args.pooling,
        context_shift=args.context_shift,
        n_keep=args.keep,
        spm_infill=args.spm_infill,
    )
