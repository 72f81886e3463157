"""What the routes share: the options, and the runner with its model once that is loaded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from engine.backends.base import Backend, ModelError, ModelInfo
from engine.clock import Clock
from engine.door import DRAINING
from engine.http.chat import ChatTemplate
from engine.http.errors import ApiError
from engine.options import Options
from engine.options_server import ServerOptions
from engine.runner import Runner
from engine.scheduler.task import SamplingParams


@dataclass(slots=True)
class ServerState:
    options: Options
    clock: Clock
    started_at: float
    runner: Runner | None = None
    template: ChatTemplate | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)  # for what a request leaves out
    lora: list[float] = field(default_factory=list)  # scale of each adapter, for requests without a list of their own
    draining: asyncio.Event = field(default_factory=asyncio.Event)  # no new tasks; those that are here may still end well
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ready(self, runner: Runner) -> None:
        """The model is loaded: from now on requests are served."""
        self.template = _template(self.options.server, runner.backend.info)
        self.sampling = default_sampling(self.options, runner.backend)
        self.lora = [file.scale for file in self.options.tasks.lora]
        self.runner = runner

    @property
    def live(self) -> Runner:
        if self.runner is None:
            raise loading_error()
        return self.runner


def _template(server: ServerOptions, info: ModelInfo) -> ChatTemplate:
    return ChatTemplate(info, server.chat_template, prefill=server.prefill_assistant, defaults=server.chat_template_kwargs)


def default_sampling(options: Options, backend: Backend) -> SamplingParams:
    """The sampling that the command line asks for, once there is a model. ModelError when the model cannot do it."""
    sampling = options.sampling
    unknown = [token for token, _ in sampling.logit_bias if token >= backend.info.n_vocab]
    if unknown:
        raise ModelError(f"--logit-bias names token {unknown[0]}, the model has {backend.info.n_vocab}.")
    try:
        if options.json_schema is not None and not sampling.grammar:
            sampling = replace(sampling, grammar=backend.schema_grammar(options.json_schema))
        if sampling.grammar:
            backend.check_grammar(sampling.grammar)
    except ValueError as exc:
        raise ModelError(f"The grammar or JSON schema for every answer cannot be used: {exc}.") from exc
    return sampling


def draining_error() -> ApiError:
    return ApiError(503, DRAINING)


def loading_error() -> ApiError:
    return ApiError(503, "Loading model")
