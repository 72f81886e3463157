"""The three shapes of an answer: native, OpenAI completion and OpenAI chat; whole, or as server-sent events.

A chunk is the hot path, once for each generated token: it is put together from bytes prepared at the start.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from engine.delivery import Chunk, Done, PromptProgress
from engine.http.logprobs import Logprobs
from engine.http.requests import CompletionRequest
from engine.http.timings import final_timings, running_timings
from engine.scheduler.plan import TokenProbs

_dumps = orjson.dumps


def sse(content: Any) -> bytes:
    return b"data: " + _dumps(content) + b"\n\n"


class Format(Protocol):
    """Bytes of one request's answer: as the events of a stream, or `whole`."""

    def chunk(self, chunk: Chunk) -> bytes: ...

    def progress(self, progress: PromptProgress) -> bytes: ...

    def final(self, done: Done) -> bytes: ...

    def closing(self, dones: Sequence[Done]) -> bytes: ...

    def whole(self, dones: Sequence[Done]) -> Any: ...


def fingerprint(build: str) -> str:
    """`system_fingerprint` as clients of llama-server know it, llama.cpp's build first: `b11669-cyllama-0.7.0`."""
    words = build.replace(",", " ").split()
    number = [word for word in words if word[0] == "b" and word[1:].isdigit()]
    return "-".join(number + [word for word in words if word not in number and word != "llama.cpp"])


def progress_json(event: PromptProgress) -> dict[str, Any]:
    visited = event.handle.visited_at or event.at
    return {
        "total": len(event.handle.task.prompt),
        "cache": event.cache,
        "processed": event.processed,
        "time_ms": round((event.at - visited) * 1e3, 3),
    }


class NativeFormat:
    """POST /completion."""

    def __init__(
        self, request: CompletionRequest, model: str, settings: dict[str, Any], prompts: Sequence[str], logprobs: Logprobs
    ) -> None:
        self._request = request
        self._logprobs = logprobs
        self._model = model
        self._settings = settings
        self._prompts = prompts  # as text, one for each task of the request

    def chunk(self, chunk: Chunk) -> bytes:
        handle = chunk.handle
        tail = b""
        if chunk.probs and (shown := self._logprobs.of_text(chunk.probs, chunk.text, handle)):
            tail = b',"completion_probabilities":' + _dumps(self._logprobs.native(shown))
        if self._request.timings_per_token:
            tail += b',"timings":' + _dumps(running_timings(handle, chunk.n_decoded, chunk.at))
        return b'data: {"index":%d,"content":%b,"tokens":%b,%b,"tokens_predicted":%d,"tokens_evaluated":%d%b}\n\n' % (
            handle.index,
            _dumps(chunk.text),
            _dumps(chunk.tokens),
            b'"stop":false,"id_slot":-1',
            chunk.n_decoded,
            len(handle.task.prompt),
            tail,
        )

    def progress(self, progress: PromptProgress) -> bytes:
        handle = progress.handle
        return sse(
            {
                "index": handle.index,
                "content": "",
                "tokens": [],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": 0,
                "tokens_evaluated": len(handle.task.prompt),
                "prompt_progress": progress_json(progress),
            }
        )

    def final(self, done: Done) -> bytes:
        return sse(self._final(done))

    def closing(self, dones: Sequence[Done]) -> bytes:
        return b""

    def whole(self, dones: Sequence[Done]) -> Any:
        answers = [self._final(done) for done in dones]
        return answers[0] if len(answers) == 1 else answers

    def _final(self, done: Done) -> dict[str, Any]:
        handle, finished = done.handle, done.finished
        answer = {
            "index": handle.index,
            "content": "".join(handle.parts),
            "tokens": [] if handle.stream else handle.tokens,
            "id_slot": finished.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": finished.n_generated,
            "tokens_evaluated": finished.n_prompt,
            "generation_settings": self._settings,
            "prompt": self._prompts[handle.index] if self._prompts else "",
            "has_new_line": handle.text.has_new_line,
            "truncated": finished.truncated,
            "stop_type": done.stop,
            "stopping_word": handle.text.stopped_by,
            "tokens_cached": finished.n_slot_tokens,
            "timings": final_timings(finished),
        }
        if self._request.sampling.n_probs and not handle.stream:
            shown = self._logprobs.of_text(handle.probs, "".join(handle.parts), handle)
            answer["completion_probabilities"] = self._logprobs.native(shown)
        wanted = self._request.response_fields
        return pick(answer, wanted) if wanted else answer


def pick(answer: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The named fields; `a/b` is b of a, under that name, as llama-server does. Unknown names are left out."""
    picked: dict[str, Any] = {}
    for path in wanted:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            picked[path] = value
    return picked


def finish_reason(done: Done) -> str:
    return "stop" if done.stop in ("eos", "word") else "length"


def usage_json(dones: Sequence[Done]) -> dict[str, Any]:
    prompt = sum(done.finished.n_prompt for done in dones if done.handle.task_id == done.handle.task.id)
    generated = sum(done.finished.n_generated for done in dones)
    cached = sum(done.finished.n_cached for done in dones if done.handle.task_id == done.handle.task.id)
    return {
        "completion_tokens": generated,
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class _OaiFormat(ABC):
    """What both OpenAI shapes share: envelope, usage, the end of a stream."""

    whole_object: str
    chunk_object: str
    id_prefix: str

    def __init__(self, request: CompletionRequest, model: str, build: str, logprobs: Logprobs) -> None:
        self._request = request
        self._logprobs = logprobs
        self._envelope = {
            "created": int(time.time()),
            "id": self.id_prefix + secrets.token_urlsafe(18),
            "model": model,
            "system_fingerprint": fingerprint(build),
            "object": self.chunk_object,
        }
        self._tail = b"," + _dumps(self._envelope)[1:-1]

    def chunk(self, chunk: Chunk) -> bytes:
        shown = chunk.probs and self._logprobs.of_text(chunk.probs, chunk.text, chunk.handle)
        if not chunk.text and not shown:
            return b""
        timings = b""
        if self._request.timings_per_token:
            timings = b',"timings":' + _dumps(running_timings(chunk.handle, chunk.n_decoded, chunk.at))
        probs = _dumps(self._probs_json(shown)) if shown else b"null"
        choice = self._choice(chunk.handle.index, _dumps(chunk.text), probs)
        return b'data: {"choices":[%b]%b%b}\n\n' % (choice, self._tail, timings)

    def progress(self, progress: PromptProgress) -> bytes:
        choice = self._empty_choice(progress.handle.index, None)
        return sse({"choices": [choice], **self._envelope, "prompt_progress": progress_json(progress)})

    def final(self, done: Done) -> bytes:
        choice = self._empty_choice(done.handle.index, finish_reason(done))
        return sse({"choices": [choice], **self._envelope, "timings": final_timings(done.finished)})

    def closing(self, dones: Sequence[Done]) -> bytes:
        end = b"data: [DONE]\n\n"
        if not self._request.include_usage:
            return end
        usage = {"choices": [], **self._envelope, "usage": usage_json(dones)}
        if len(dones) == 1:
            usage["timings"] = final_timings(dones[0].finished)
        return sse(usage) + end

    def whole(self, dones: Sequence[Done]) -> Any:
        answer = {
            "choices": [self._whole_choice(done) for done in dones],
            **self._envelope,
            "object": self.whole_object,
            "usage": usage_json(dones),
        }
        if len(dones) == 1:
            answer["timings"] = final_timings(dones[0].finished)
        return answer

    @abstractmethod
    def _choice(self, index: int, text: bytes, probs: bytes) -> bytes: ...

    @abstractmethod
    def _probs_json(self, found: Sequence[TokenProbs]) -> dict[str, Any]: ...

    def _whole_probs(self, done: Done) -> dict[str, Any] | None:
        if not self._request.sampling.n_probs:
            return None
        handle = done.handle
        return self._probs_json(self._logprobs.of_text(handle.probs, "".join(handle.parts), handle))

    @abstractmethod
    def _empty_choice(self, index: int, reason: str | None) -> dict[str, Any]: ...

    @abstractmethod
    def _whole_choice(self, done: Done) -> dict[str, Any]: ...


class OaiCompletionFormat(_OaiFormat):
    """POST /v1/completions."""

    whole_object = "text_completion"
    chunk_object = "text_completion"
    id_prefix = "cmpl-"

    def _choice(self, index: int, text: bytes, probs: bytes) -> bytes:
        return b'{"text":%b,"index":%d,"logprobs":%b,"finish_reason":null}' % (text, index, probs)

    def _probs_json(self, found: Sequence[TokenProbs]) -> dict[str, Any]:
        return self._logprobs.completion(found)

    def _empty_choice(self, index: int, reason: str | None) -> dict[str, Any]:
        return {"text": "", "index": index, "logprobs": None, "finish_reason": reason}

    def _whole_choice(self, done: Done) -> dict[str, Any]:
        text = "".join(done.handle.parts)
        probs = self._whole_probs(done)
        return {"text": text, "index": done.handle.index, "logprobs": probs, "finish_reason": finish_reason(done)}


class OaiChatFormat(_OaiFormat):
    """POST /v1/chat/completions. Each choice of a stream opens with its role."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def __init__(self, request: CompletionRequest, model: str, build: str, logprobs: Logprobs) -> None:
        super().__init__(request, model, build, logprobs)
        self._opened = 0  # choices whose role was sent

    def chunk(self, chunk: Chunk) -> bytes:
        return self._role(chunk.handle.index) + super().chunk(chunk)

    def progress(self, progress: PromptProgress) -> bytes:
        return self._role(progress.handle.index) + super().progress(progress)

    def final(self, done: Done) -> bytes:
        return self._role(done.handle.index) + super().final(done)

    def _role(self, index: int) -> bytes:
        """The roles of all choices up to this one that have none yet: clients take the first chunk for the first choice's."""
        if index < self._opened:
            return b""
        first, self._opened = self._opened, index + 1
        return b"".join(map(self._opening, range(first, index + 1)))

    def _opening(self, index: int) -> bytes:
        delta = {"role": "assistant", "content": None}
        return sse({"choices": [{"finish_reason": None, "index": index, "delta": delta}], **self._envelope})

    def _choice(self, index: int, text: bytes, probs: bytes) -> bytes:
        if probs == b"null":
            return b'{"finish_reason":null,"index":%d,"delta":{"content":%b}}' % (index, text)
        return b'{"finish_reason":null,"index":%d,"delta":{"content":%b},"logprobs":%b}' % (index, text, probs)

    def _probs_json(self, found: Sequence[TokenProbs]) -> dict[str, Any]:
        return self._logprobs.chat(found)

    def _empty_choice(self, index: int, reason: str | None) -> dict[str, Any]:
        return {"finish_reason": reason, "index": index, "delta": {}}

    def _whole_choice(self, done: Done) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(done.handle.parts)}
        choice = {"finish_reason": finish_reason(done), "index": done.handle.index, "message": message}
        return {**choice, "logprobs": self._whole_probs(done)} if self._request.sampling.n_probs else choice
