"""From a file and start-up options to a model, its context, and what may be asked about both.

One of the modules that import the binding: `llama` runs batches, this one prepares what they run on.
"""

from __future__ import annotations

import json
import logging
import os
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from cyllama.llama import llama_cpp

from engine.backends.base import BackendOptions, DraftInfo, DraftOptions, FimTokens, ModelError, ModelInfo
from engine.backends.modes import pooling_name, set_modes
from engine.drafts import DraftError, DraftInvalid, Prepared, prepare
from engine.scheduler.policy import MOST_DRAFTED

log = logging.getLogger("engine")

MAGIC = b"GGUF"


def load_model(path: Path) -> llama_cpp.LlamaModel:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"The model file {path} cannot be read: {error.strerror}.") from error
    if magic != MAGIC:
        raise ModelError(f"{path} is not a GGUF file: it does not begin with the letters GGUF.")
    try:
        return llama_cpp.LlamaModel(path_model=str(path), params=llama_cpp.LlamaModelParams(), verbose=False)
    except (ValueError, RuntimeError, OSError) as error:
        raise ModelError(f"llama.cpp cannot load {path}: the file is damaged or of an unknown architecture.") from error


def load_draft(target: Path, options: DraftOptions) -> tuple[llama_cpp.LlamaModel | None, DraftInfo]:
    """The draft model, adapted in memory where its target needs that, and what to tell about it.

    No model when it cannot be used and the options call it optional; otherwise ModelError with one sentence. Either way that is
    decided from the headers, before a tensor is read and before there is any context.
    """
    try:
        with prepare(target, options.path, options.rope) as prepared:
            model = _load_prepared(prepared)
    except (DraftError, ModelError) as error:
        if not options.optional:
            sentence = str(error).removesuffix(".")
            raise ModelError(f"{sentence}; --draft-optional would serve without the draft.") from error
        log.warning("Serving without the draft model %s: %s", options.path, error)
        outcome = "invalid" if isinstance(error, DraftInvalid) else "unreadable"
        return None, DraftInfo(str(options.path), loaded=False, outcome=outcome, text=str(error))
    decision = prepared.decision
    if decision.adapts:
        log.warning("Temporal-only rotary sections %s for the draft model %s: %s", decision.sections, options.path, decision.text)
    for warning in decision.warnings:
        log.warning("Draft model %s: %s", options.path, warning)
    return model, DraftInfo(str(options.path), True, decision.outcome.value, decision.text, decision.sections, decision.warnings)


def _load_prepared(prepared: Prepared) -> llama_cpp.LlamaModel:
    try:
        return load_model(prepared.path)
    except ModelError as error:
        raise ModelError(str(error).replace(str(prepared.path), str(prepared.draft))) from error


def make_context(model: llama_cpp.LlamaModel, options: BackendOptions) -> llama_cpp.LlamaContext:
    threads = options.n_threads or len(os.sched_getaffinity(0))
    params = llama_cpp.LlamaContextParams()
    params.n_ctx = options.n_ctx
    params.n_seq_max = options.n_slots
    params.kv_unified = options.kv_mode == "unified"
    params.n_batch = max(options.n_batch, options.n_slots)  # every slot can always have its generation token in
    params.n_ubatch = options.n_ubatch
    params.n_threads = threads
    params.n_threads_batch = options.n_threads_batch or threads
    params.n_outputs_max = options.n_slots + MOST_DRAFTED  # one row a slot, and one behind each drafted token
    params.swa_full = False
    set_modes(params, options)
    try:
        return llama_cpp.LlamaContext(model=model, params=params, verbose=False)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ModelError(f"llama.cpp cannot make a context of {options.n_ctx} tokens for this model: {error}.") from error


def describe(
    path: Path, model: llama_cpp.LlamaModel, vocab: llama_cpp.LlamaVocab, context: llama_cpp.LlamaContext, options: BackendOptions
) -> ModelInfo:
    n_vocab = int(vocab.n_vocab)
    bos, eos = int(vocab.token_bos()), int(vocab.token_eos())
    return ModelInfo(
        name=path.stem,
        path=str(path),
        build=_build(),
        backend="llama",
        kv_mode=options.kv_mode,
        n_ctx=int(context.n_ctx),
        n_ctx_slot=min(int(context.n_ctx_seq), int(model.n_ctx_train)),
        n_ctx_train=int(model.n_ctx_train),
        n_vocab=n_vocab,
        n_batch=int(context.n_batch),
        n_ubatch=int(context.n_ubatch),
        n_threads=int(context.n_threads()),
        n_params=int(model.n_params),
        size_bytes=int(model.size),
        can_trim=not (model.is_recurrent() or model.is_hybrid() or model.n_swa),
        can_draft=not (model.is_recurrent() or model.is_hybrid()),
        bos=bos,
        add_bos=bool(vocab.get_add_bos()),
        bos_text=_text(vocab, bos),
        eos_text=_text(vocab, eos),
        eog=frozenset(token for token in range(n_vocab) if vocab.is_eog(token)),
        chat_template=model.get_default_chat_template() or "",
        ftype=str(model.ftype_name),
        fim=_fim_tokens(vocab),
        generates=_generates(model),
        can_shift=bool(context.memory_can_shift()),
        pooling=pooling_name(int(context.pooling_type)) if options.embeddings else "none",
        eos=eos,
        sep=int(vocab.token_sep()),
        add_eos=bool(vocab.get_add_eos()),
        add_sep=bool(vocab.get_add_sep()),
        rerank_template=model.get_default_chat_template_by_name("rerank") or "",
    )


def _fim_tokens(vocab: llama_cpp.LlamaVocab) -> FimTokens:
    tokens = (vocab.fim_prefix(), vocab.fim_suffix(), vocab.fim_middle(), vocab.fim_rep(), vocab.fim_sep())
    return FimTokens(*map(int, tokens))


def _generates(model: llama_cpp.LlamaModel) -> bool:
    """False for an encoder: its tokens look ahead, so none can follow."""
    metadata: dict[str, str] = model.metadata()
    return metadata.get(f"{metadata.get('general.architecture')}.attention.causal") != "false"


def _build() -> str:
    """The binding's own version and the llama.cpp release inside it."""
    config = json.loads(files("cyllama").joinpath("build_config.json").read_text(encoding="utf-8"))
    return f"cyllama {version('cyllama')}, llama.cpp {config['versions']['llama_cpp_version']}"


def _text(vocab: llama_cpp.LlamaVocab, token: int) -> str:
    return bytes(vocab.token_to_bytes(token, 0, True)).decode("utf-8", "replace") if token >= 0 else ""
