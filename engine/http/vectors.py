"""Embeddings and reranking: one prompt in, one vector out; native shapes and those of OpenAI, Jina and TEI."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any, Literal

from starlette.types import Receive, Scope, Send

from engine.backends.base import Backend, ModelInfo
from engine.delivery import Chunk, Done, Handle, Mailbox, PromptProgress, ReaderGone
from engine.http.adapters import effective
from engine.http.body import read_aside, read_body
from engine.http.completions import label_of
from engine.http.errors import ApiError, field_error, json_response
from engine.http.fields import Fields, parse_object
from engine.http.jobs import Job, collect
from engine.http.prompts import read_prompts
from engine.http.requests import CompletionRequest, read_request
from engine.http.state import ServerState
from engine.runner import Runner
from engine.scheduler.plan import Vectors
from engine.scheduler.task import Group, Task, TaskType
from engine.text import TextStream

Kind = Literal["native", "oai", "rerank"]

_OWN_FIELDS = ("id_slot", "queue_timeout_ms", "client", "user")  # of a request that asks for no text
EUCLIDEAN = 2
MAX_DOCUMENTS = 1024
_LARGEST_INT16 = 32760.0  # llama.cpp's, for the norm of the largest value


class VectorRoute:
    """An ASGI endpoint for /embeddings (native), /v1/embeddings (oai) or /rerank."""

    def __init__(self, state: ServerState, kind: Kind) -> None:
        self._state = state
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await read_body(scope, receive)
            runner = self._state.live
            self._check_offered(runner.backend.info)
            job = await read_aside(len(raw), self._prepare, parse_object(raw), label_of(scope), runner)
            answer = await collect(job, runner, receive)
            await json_response(answer)(scope, receive, send)
        except ReaderGone:
            return

    def _check_offered(self, info: ModelInfo) -> None:
        tasks = self._state.options.tasks
        if self._kind == "rerank":
            if not tasks.reranking:
                raise ApiError(501, "This server does not support reranking. Start it with `--reranking`")
            return
        if not tasks.embeddings:
            raise ApiError(501, "This server does not support embeddings. Start it with `--embeddings`")
        if info.pooling == "rank":
            raise ApiError(400, "Pooling type 'rank' makes scores, not embeddings: use /rerank, or start with another --pooling")
        if self._kind == "oai" and info.pooling == "none":
            raise ApiError(400, "Pooling type 'none' is not OAI compatible. Please use a different pooling type")

    def _prepare(self, body: dict[str, Any], label: str, runner: Runner) -> Job:
        """For a long body in a thread of its own."""
        options = self._state.options
        request = read_request(
            {name: body[name] for name in _OWN_FIELDS if name in body},
            n_slots=options.n_slots,
            n_predict=-1,
            cache_prompt=False,
            client=label,
            sampling=self._state.sampling,
            ping_s=0,
            queue_timeout_ms=options.queue_timeout_ms,
            lora_scales=self._state.lora,
            n_keep=0,
            backend=runner.backend,
        )
        model = Fields(body).text("model") or options.alias
        prompts: Sequence[list[int]]
        format_: VectorFormat
        if self._kind == "rerank":
            rerank = RerankFormat(body, model)
            prompts = [rerank_prompt(rerank.query, text, runner.backend) for text in rerank.texts]
            format_, kind = rerank, TaskType.RERANK
        else:
            format_, kind = embedding_format(body, model, self._kind, runner.backend.info), TaskType.EMBEDDING
            prompts = _inputs(body, runner.backend)
        return self._job(request, kind, prompts, format_)

    def _job(self, request: CompletionRequest, kind: TaskType, prompts: Sequence[list[int]], format_: VectorFormat) -> Job:
        """Adapters are the server's own: as in llama-server, these tasks have no list of their own."""
        group = Group(kind, effective(self._state.lora))
        now, ids, mailbox = self._state.clock.now(), self._state.task_ids, Mailbox()
        tasks = tuple(
            Task(
                next(ids),
                prompt,
                n_predict=0,
                id_slot=request.id_slot,
                cache_prompt=False,
                group=group,
                client=request.client,
                submitted_at=now,
            )
            for prompt in prompts
        )
        handles = tuple(Handle(task, task.id, place, mailbox, TextStream(()), False) for place, task in enumerate(tasks))
        return Job(request, tasks, handles, mailbox, format_)


class VectorFormat(ABC):
    """A `Format` whose answers come whole."""

    def chunk(self, chunk: Chunk) -> bytes:
        return b""

    def progress(self, progress: PromptProgress) -> bytes:
        return b""

    def final(self, done: Done) -> bytes:
        return b""

    def closing(self, dones: Sequence[Done]) -> bytes:
        return b""

    @abstractmethod
    def whole(self, dones: Sequence[Done]) -> Any: ...


class NativeEmbeddings(VectorFormat):
    """[{"index", "embedding": [vectors]}]; with pooling "none" a vector for each token, as the model made it."""

    def __init__(self, norm: int) -> None:
        self._norm = norm

    def whole(self, dones: Sequence[Done]) -> Any:
        return [{"index": done.handle.index, "embedding": self._vectors(vectors_of(done))} for done in dones]

    def _vectors(self, vectors: Vectors) -> list[list[float]]:
        return [normalized(vector, self._norm) for vector in vectors]


class OaiEmbeddings(VectorFormat):
    """OpenAI's shape, with numbers, or with base64 of little-endian single floats."""

    def __init__(self, norm: int, model: str, *, as_base64: bool) -> None:
        self._norm = norm
        self._model = model
        self._as_base64 = as_base64

    def whole(self, dones: Sequence[Done]) -> Any:
        n_tokens = sum(done.finished.n_prompt for done in dones)
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"model": self._model, "object": "list", "usage": usage, "data": [self._item(done) for done in dones]}

    def _item(self, done: Done) -> dict[str, Any]:
        vector = normalized(vectors_of(done)[0], self._norm)
        item = {"index": done.handle.index, "object": "embedding"}
        if self._as_base64:
            return {"embedding": base64.b64encode(array("f", vector).tobytes()).decode(), **item, "encoding_format": "base64"}
        return {"embedding": vector, **item}


class RerankFormat(VectorFormat):
    """Reads a query with its documents, and ranks them: Jina's shape, or TEI's where the documents are called `texts`."""

    def __init__(self, body: dict[str, Any], model: str) -> None:
        fields = Fields(body)
        if body.get("query") is None:
            raise ApiError(400, '"query" must be provided', field="query")
        self.query = fields.text("query")
        self._tei = "texts" in body
        name = "documents" if body.get("documents") is not None or not self._tei else "texts"
        texts = fields.array(name)
        if not 1 <= len(texts) <= MAX_DOCUMENTS or any(type(text) is not str for text in texts):
            raise field_error(name, f"a non-empty array of at most {MAX_DOCUMENTS} strings")
        self.texts: list[str] = texts
        self._top_n = fields.integer("top_n", default=len(texts), low=0)
        self._return_text = fields.boolean("return_text", default=False)
        self._model = model

    def whole(self, dones: Sequence[Done]) -> Any:
        best = sorted(dones, key=lambda done: -vectors_of(done)[0][0])[: self._top_n]
        label = "score" if self._tei else "relevance_score"
        results: list[dict[str, Any]] = [{"index": done.handle.index, label: vectors_of(done)[0][0]} for done in best]
        if self._tei:
            if self._return_text:
                results = [{**result, "text": self.texts[done.handle.index]} for result, done in zip(results, best, strict=True)]
            return results
        n_tokens = sum(done.finished.n_prompt for done in dones)
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"model": self._model, "object": "list", "usage": usage, "results": results}


def embedding_format(body: dict[str, Any], model: str, kind: Kind, info: ModelInfo) -> VectorFormat:
    """`content` in place of `input` asks for the native shape on every path, as in llama-server."""
    fields = Fields(body)
    encoding = fields.text("encoding_format", default="float")
    if encoding not in ("float", "base64"):
        raise field_error("encoding_format", "float or base64")
    norm = fields.integer("embd_normalize", default=EUCLIDEAN, low=-1, high=1000)
    if info.pooling == "none":
        norm = -1
    if kind == "oai" and body.get("input") is not None:
        return OaiEmbeddings(norm, model, as_base64=encoding == "base64")
    return NativeEmbeddings(norm)


def _inputs(body: dict[str, Any], backend: Backend) -> list[list[int]]:
    name = "content" if body.get("input") is None else "input"
    given = body.get(name)
    if given is None:
        raise ApiError(400, '"input" or "content" must be provided', field="input")
    given = [_text(item, name) for item in given] if type(given) is list else _text(given, name)
    prompts = read_prompts(given, backend, name=name)
    if not all(prompts):
        raise ApiError(400, "Input content cannot be empty", field=name)
    return prompts


def _text(item: Any, name: str) -> Any:
    """An object that wraps a text becomes the text; anything else stays."""
    if type(item) is not dict:
        return item
    if type(item.get("prompt_string")) is str:
        return item["prompt_string"]
    parts = item.get("content")
    wrong = field_error(name, "made of texts: other content is not supported")
    if type(parts) is not list or not parts:
        raise wrong
    texts = [
        part["text"] for part in parts if type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str
    ]
    if len(texts) != len(parts):
        raise wrong
    return "".join(texts)


def rerank_prompt(query: str, text: str, backend: Backend) -> list[int]:
    """The model's own template, else BOS query EOS SEP text EOS, as far as its vocabulary asks for them."""
    info = backend.info
    if info.rerank_template:
        prompt = info.rerank_template.replace("{query}", query).replace("{document}", text)
        return backend.tokenize(prompt, add_special=False)
    end = [info.eos if info.eos >= 0 else info.sep] if info.add_eos else []
    parts = (
        [info.bos] if info.add_bos else [],
        backend.tokenize(query, add_special=False, parse_special=False),
        end,
        [info.sep] if info.add_sep else [],
        backend.tokenize(text, add_special=False, parse_special=False),
        end,
    )
    return [token for part in parts for token in part]


def vectors_of(done: Done) -> Vectors:
    if done.finished.vectors is None:
        raise ApiError(500, "The backend gave no vector for this prompt.")
    return done.finished.vectors


def normalized(vector: Sequence[float], norm: int) -> list[float]:
    """llama.cpp's norms: -1 none, 0 the largest value (to 32760), else the p-norm (2: Euclidean). A zero vector stays one."""
    if norm < 0:
        return list(vector)
    if norm == 0:
        size = max(map(abs, vector), default=0.0) / _LARGEST_INT16
    else:
        size = sum(abs(value) ** norm for value in vector) ** (1 / norm)
    return [value / size if size > 0 else 0.0 for value in vector]
