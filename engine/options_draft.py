"""Flags for a draft model beside the model, and for the folders whose model files may be looked at."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from engine.backends.base import DraftOptions
from engine.drafts import MODES
from engine.options_env import Env


@dataclass(frozen=True, slots=True)
class FileOptions:
    """`draft` None: no draft model. `folders` are those that `GET /models/files` lists, beside the files that are in use."""

    draft: DraftOptions | None = None
    folders: tuple[Path, ...] = ()


def add_draft_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("draft model")
    add = group.add_argument
    path = env.text("LLAMA_ARG_SPEC_DRAFT_MODEL", env.text("LLAMA_ARG_MODEL_DRAFT", ""))
    text = "GGUF file of a draft model for speculative decoding"
    add("-md", "--model-draft", "--spec-draft-model", dest="model_draft", default=path, metavar="PATH", help=text)
    text = (
        "rotary sections of a legacy DFlash draft: inferred where the target needs them (auto, the default), never (off), "
        "or temporal-only whatever the files say (temporal)"
    )
    add("--draft-rope", choices=MODES, default=env.text("DRAFT_ROPE", "auto"), help=text)
    optional = bool(env.switch("DRAFT_OPTIONAL"))
    text = "serve without the draft model where it cannot be used, and say so; without the flag the server does not start"
    add("--draft-optional", action="store_true", default=optional, help=text)
    folders = env.text("LLAMA_ARG_MODELS_DIR", "")
    text = "folders whose GGUF files the console may list and check, by name and header; none is served from there"
    add("--models-dir", default=folders, metavar="DIR[,DIR]", help=text)


def files_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> FileOptions:
    mode = next((mode for mode in MODES if mode == args.draft_rope), None)
    if mode is None:
        parser.error(f"argument --draft-rope: {args.draft_rope!r} is not one of {', '.join(MODES)}")
    folders = tuple(Path(name.strip()) for name in args.models_dir.split(",") if name.strip())
    for folder in folders:
        if not folder.is_dir():
            parser.error(f"argument --models-dir: {folder} is not a folder")
    draft = DraftOptions(Path(args.model_draft), mode, args.draft_optional) if args.model_draft else None
    return FileOptions(draft, folders)
