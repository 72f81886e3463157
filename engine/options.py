"""The command line: llama-server's flag names, aliases and environment variables, resolved once into `Options`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from engine.backends.base import BackendOptions, KvMode
from engine.door import UNLIMITED
from engine.options_accepted import add_accepted, check_variables
from engine.options_draft import FileOptions, add_draft_flags, files_of
from engine.options_env import Env, OneSentenceParser, WholeNumbers, number
from engine.options_policy import add_policy_flags, policy_of
from engine.options_sampling import add_sampling_flags, sampling_of
from engine.options_server import ServerOptions, add_server_flags, server_of
from engine.options_tasks import TaskOptions, add_task_flags, tasks_of
from engine.scheduler.policy import Policy
from engine.scheduler.task import SamplingParams

DEFAULT_MODEL = Path(__file__).resolve().parent.parent / "var" / "models" / "tiny.gguf"
AUTO_SLOTS = 4
KvOrigin = Literal["flag", "auto"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the server was started with. Sizes in tokens; `n_ctx` 0 means the model's train context."""

    model: Path
    model_given: bool
    alias: str
    aliases: tuple[str, ...]  # every name of the model, the one it is shown by first
    backend: str
    n_slots: int
    n_ctx: int
    kv_mode: KvMode
    kv_from: KvOrigin
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_threads_batch: int
    n_predict: int
    host: str
    port: int
    api_keys: tuple[str, ...]
    slots_endpoint: bool
    metrics_endpoint: bool
    props_endpoint: bool
    slot_prompt_similarity: float
    cont_batching: bool
    cache_prompt: bool
    policy: Policy
    queue_limit: int = UNLIMITED
    queue_timeout_ms: int = 0
    slot_save_path: Path | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    json_schema: dict[str, Any] | None = None  # for every answer, unless a request says otherwise
    server: ServerOptions = field(default_factory=ServerOptions)
    tasks: TaskOptions = field(default_factory=TaskOptions)
    files: FileOptions = field(default_factory=FileOptions)
    no_effect: tuple[str, ...] = ()  # a sentence for each flag and variable that does nothing here

    @property
    def backend_options(self) -> BackendOptions:
        return BackendOptions(
            n_slots=self.n_slots,
            n_ctx=self.n_ctx,
            kv_mode=self.kv_mode,
            n_batch=self.n_batch,
            n_ubatch=self.n_ubatch,
            n_threads=self.n_threads,
            n_threads_batch=self.n_threads_batch,
            lora=tuple(file.path for file in self.tasks.lora),
            embeddings=self.tasks.embeddings,
            pooling=self.tasks.pooling,
            draft=self.files.draft,
        )


def build_parser(environ: Mapping[str, str]) -> tuple[argparse.ArgumentParser, Env]:
    parser = OneSentenceParser(
        prog="slotboard-engine",
        allow_abbrev=False,
        description="Inference server with llama-server's HTTP interface and scheduling policies that switch while it serves.",
        epilog="Every other flag of llama-server is taken too, and has no effect; a line says so.",
    )
    parser.add_argument("--version", action="version", version=_version(), help="say what this is, and end")
    env = Env(parser, environ)
    _model_flags(parser, env)
    _server_flags(parser, env)
    add_server_flags(parser, env)
    add_task_flags(parser, env)
    add_draft_flags(parser, env)
    add_policy_flags(parser, env)
    add_sampling_flags(parser, env)
    add_accepted(parser)
    return parser, env


def _version() -> str:
    """The binding without loading it; the engine alone has no number of its own."""
    try:
        return f"slotboard-engine, cyllama {version('cyllama')}"
    except PackageNotFoundError:
        return "slotboard-engine without cyllama"


def _model_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("model and batches")
    add, whole = group.add_argument, WholeNumbers(group, env)
    add(
        "-m",
        "--model",
        default=env.text("LLAMA_ARG_MODEL", ""),
        metavar="PATH",
        help="GGUF file; without it a tiny model is made",
    )
    add("-a", "--alias", default=env.text("LLAMA_ARG_ALIAS", ""), help="model names that clients see, separated by commas")
    add("--backend", choices=["llama", "simulated"], default=env.text("BACKEND", "llama"), help="what computes the batches")
    text = "slots; -1 (default): 4, and one KV cache for all unless a KV flag is given"
    whole.add("-np", "--parallel", env="LLAMA_ARG_N_PARALLEL", default=-1, low=1, high=256, also=(-1,), text=text)
    text = "context of all slots together in tokens; 0 (default): the model's train context"
    whole.add("-c", "--ctx-size", env="LLAMA_ARG_CTX_SIZE", default=0, low=0, text=text)
    kv = env.switch("LLAMA_ARG_KV_UNIFIED")
    add("-kvu", "--kv-unified", dest="kv_unified", action="store_true", default=kv, help="one KV cache that all slots share")
    add("-no-kvu", "--no-kv-unified", dest="kv_unified", action="store_false", help="a KV cache of its own for each slot")
    whole.add("-b", "--batch-size", env="LLAMA_ARG_BATCH", default=2048, low=1, high=1 << 20, text="most tokens in a batch")
    whole.add(
        "-ub", "--ubatch-size", env="LLAMA_ARG_UBATCH", default=512, low=1, high=1 << 20, text="most tokens in a physical batch"
    )
    text = "threads for generation; -1: one for each core"
    whole.add("-t", "--threads", env="LLAMA_ARG_THREADS", default=-1, low=-1, high=1024, text=text)
    text = "threads for prompts; -1: as --threads"
    whole.add("-tb", "--threads-batch", env="LLAMA_ARG_THREADS_BATCH", default=-1, low=-1, high=1024, text=text)
    text = "most tokens to generate for a request that does not say; -1: until the context ends"
    whole.add("-n", "--predict", "--n-predict", env="LLAMA_ARG_N_PREDICT", default=-1, low=-1, text=text)
    text = "share of a prompt that a slot must hold already to be preferred"
    add("-sps", "--slot-prompt-similarity", type=number(0, 1), default=0.1, metavar="X", help=text)


def _server_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("server")
    add, whole = group.add_argument, WholeNumbers(group, env)
    add("--host", default=env.text("LLAMA_ARG_HOST", "127.0.0.1"), help="address to listen on")
    text = "port to listen on; 0: any free one"
    whole.add("--port", env="LLAMA_ARG_PORT", default=8080, low=0, high=65535, text=text)
    add("--api-key", default=env.text("LLAMA_API_KEY", ""), metavar="K[,K2]", help="keys that clients must send")
    add("--api-key-file", default="", metavar="PATH", help="file with one key a line, # for comments")
    slots, metrics, props = (env.switch(f"LLAMA_ARG_ENDPOINT_{name}") for name in ("SLOTS", "METRICS", "PROPS"))
    add("--slots", dest="slots", action="store_true", default=slots is not False, help="serve GET /slots (default)")
    add("--no-slots", dest="slots", action="store_false", help="do not serve GET /slots")
    add("--metrics", action="store_true", default=bool(metrics), help="serve GET /metrics")
    add("--props", action="store_true", default=bool(props), help="allow POST /props")
    text = "most tasks that wait for a slot; more get a 503; -1 (default): no limit"
    whole.add("--queue-limit", env="QUEUE_LIMIT", default=UNLIMITED, low=-1, text=text)
    text = "milliseconds within which work on a prompt must begin, else 503; 0 (default): no limit"
    whole.add("--queue-timeout-ms", env="QUEUE_TIMEOUT_MS", default=0, low=0, text=text)
    text = "folder for saved slots; without it slots are not saved"
    add("--slot-save-path", default=env.text("LLAMA_ARG_SLOT_SAVE_PATH", ""), metavar="PATH", help=text)
    cont, cache = env.switch("LLAMA_ARG_CONT_BATCHING"), env.switch("LLAMA_ARG_CACHE_PROMPT")
    text = "prompts share batches with generation (default)"
    add("-cb", "--cont-batching", dest="cont", action="store_true", default=cont is not False, help=text)
    add("-nocb", "--no-cont-batching", dest="cont", action="store_false", help="no prompt is touched while a slot generates")
    add("--cache-prompt", dest="cache", action="store_true", default=cache is not False, help="reuse what a slot holds (default)")
    add("--no-cache-prompt", dest="cache", action="store_false", help="process every prompt from its start")


def parse_options(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Options:
    """Flags before environment before defaults. Exits with code 2 and a sentence on stderr when something is wrong."""
    environ = os.environ if environ is None else environ
    parser, env = build_parser(environ)
    args = parser.parse_args(argv)
    _check_choice(parser, "backend", args.backend)
    auto = args.parallel == -1
    kv_from: KvOrigin = "auto" if auto and args.kv_unified is None else "flag"
    n_slots = AUTO_SLOTS if auto else args.parallel
    unified = args.kv_unified if args.kv_unified is not None else auto
    no_effect, unknown = check_variables(environ, env.understood)
    if unknown:
        parser.error(f"environment variable {unknown[0]} is unknown")
    sampling, schema = sampling_of(parser, args)
    model = Path(args.model) if args.model else DEFAULT_MODEL
    # sorted, and the first is the name that answers carry, as in llama-server
    aliases = sorted({name.strip() for name in args.alias.split(",")} - {""}) or [model.stem]
    return Options(
        model=model,
        model_given=bool(args.model),
        alias=aliases[0],
        aliases=tuple(aliases),
        backend=args.backend,
        n_slots=n_slots,
        n_ctx=args.ctx_size,
        kv_mode="unified" if unified else "split",
        kv_from=kv_from,
        n_batch=args.batch_size,
        n_ubatch=min(args.ubatch_size, args.batch_size),
        n_threads=max(0, args.threads),
        n_threads_batch=max(0, args.threads_batch),
        n_predict=args.predict,
        host=args.host,
        port=args.port,
        api_keys=_keys(parser, args.api_key, args.api_key_file),
        slots_endpoint=args.slots,
        metrics_endpoint=args.metrics,
        props_endpoint=args.props,
        slot_prompt_similarity=args.slot_prompt_similarity,
        cont_batching=args.cont,
        cache_prompt=args.cache,
        queue_limit=args.queue_limit,
        queue_timeout_ms=args.queue_timeout_ms,
        slot_save_path=_folder(parser, "--slot-save-path", args.slot_save_path),
        sampling=sampling,
        json_schema=schema,
        server=server_of(parser, args),
        tasks=tasks_of(parser, args),
        files=files_of(parser, args),
        no_effect=(*args.no_effect, *no_effect),
        policy=policy_of(parser, args, max(args.batch_size, n_slots)),
    )


def _check_choice(parser: argparse.ArgumentParser, name: str, value: str) -> None:
    """argparse does not check a default, so what came from the environment is checked here."""
    flag = f"--{name}"
    for action in parser._actions:
        if flag in action.option_strings and action.choices is not None and value not in action.choices:
            parser.error(f"argument {flag}: {value!r} is not one of {', '.join(action.choices)}")


def _folder(parser: argparse.ArgumentParser, flag: str, path: str) -> Path | None:
    if path and not Path(path).is_dir():
        parser.error(f"argument {flag}: {path} is not a folder")
    return Path(path) if path else None


def _keys(parser: argparse.ArgumentParser, inline: str, path: str) -> tuple[str, ...]:
    keys = [key.strip() for key in inline.split(",")]
    if path:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            parser.error(f"argument --api-key-file: {path} cannot be read: {exc}")
        keys += [line.strip() for line in lines if not line.lstrip().startswith("#")]
    unique = tuple(dict.fromkeys(key for key in keys if key))
    if (inline or path) and not unique:
        parser.error("an API key was asked for, but none is left after empty lines and comments")
    return unique
