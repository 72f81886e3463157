"""From a scenario and a seed to the requests that will be sent. Pure: same scenario, same seed, same scaling, same load.

What depends on the server is left to the run: when a chained request (a closed loop's next, a conversation's next turn) is due,
and what the answer within a conversation is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from workers.load import traces
from workers.load.arrivals import moments
from workers.load.draws import Draws
from workers.load.planned import AnswerOf, File, Leave, Piece, Plan, Planned, Scaling
from workers.scenarios.parts import Amount, Closed, ClosedStage, Stages, Trace
from workers.scenarios.streams import Cancel, LoadScenario, Prompt, Slo, Stream


def make_plan(
    scenario: LoadScenario, seed: int, scaling: Scaling, files: Mapping[str, str] | None = None, label: str = ""
) -> Plan:
    """`files` has the text of each file that the scenario names.

    `label` sets apart what must be fresh in each block; warm texts and arrivals stay as they are, so blocks differ in nothing
    else. Raises ValueError (TraceError) on a trace that cannot be read.
    """
    builder = _Builder(seed, scaling, files or {}, label)
    for stream in scenario.streams:
        builder.add(stream)
    return Plan(tuple(builder.requests), tuple(builder.warming.values()), builder.slos, tuple(builder.texts))


class _Builder:
    def __init__(self, seed: int, scaling: Scaling, files: Mapping[str, str], label: str) -> None:
        self.seed, self.scaling, self.files, self.label = seed, scaling, files, label
        self.requests: list[Planned] = []
        self.warming: dict[str, Planned] = {}
        self.slos: dict[str, Slo] = {}
        self.texts: list[str] = []

    def add(self, stream: Stream) -> None:
        if stream.slo is not None:
            limits = {name: limit * self.scaling.time for name, limit in stream.slo if limit is not None}
            self.slos[stream.name] = Slo(**limits)
        _Streamer(self, stream).add_all()

    def draws(self, *names: object) -> Draws:
        return Draws(":".join(map(str, (self.seed, *names))))


class _Streamer:
    """Plans the requests of one stream. Each kind of draw has a sequence of its own: one setting does not shift another."""

    def __init__(self, builder: _Builder, stream: Stream) -> None:
        self.out, self.stream, self.scaling = builder, stream, builder.scaling
        self.prompts = builder.draws(stream.name, "prompt")
        self.outputs = builder.draws(stream.name, "output")
        self.groups = builder.draws(stream.name, "prefix")
        self.leaves = builder.draws(stream.name, "cancel")
        self.thinks = builder.draws(stream.name, "think")
        self.count = 0
        self.texts = [self._text(name) for name in (stream.prompt.files or [])] if stream.prompt else []

    def _text(self, name: str) -> int:
        if name not in self.out.files:
            raise ValueError(f"Stream {self.stream.name}: the file {name} was not given.")
        self.out.texts.append(self.out.files[name])
        return len(self.out.texts) - 1

    def add_all(self) -> None:
        arrivals = self.stream.arrivals
        start = arrivals.start_s
        if isinstance(arrivals, Trace):
            self._trace(arrivals)
        elif isinstance(arrivals, Closed):
            ready: tuple[int, ...] = ()
            for number, level in enumerate(arrivals.levels):
                ready = self._level(arrivals, level, number, ready)
        else:
            for at_s in moments(arrivals, self.out.draws(self.stream.name, "arrivals")):
                stage = _stage(arrivals, at_s) if isinstance(arrivals, Stages) else 0
                self._conversation(self.count // self.stream.turns, at_s=(start + at_s) * self.scaling.time, stage=stage)

    # -- arrivals that need more than a moment ------------------------------------------------------------------------

    def _level(self, arrivals: Closed, level: ClosedStage, number: int, ready: tuple[int, ...]) -> tuple[int, ...]:
        """One stage of a closed loop: each user has its own share of the requests. Gives the last request of each user."""
        last: dict[int, int] = {}
        cut = None if arrivals.for_s is None else (arrivals.start_s + arrivals.for_s) * self.scaling.time
        for place in range(level.requests):
            user = place % level.concurrency
            before = (last[user],) if user in last else ready
            at_s = None if before else arrivals.start_s * self.scaling.time
            think_s = self._think(arrivals) if user in last else 0.0
            last[user] = self._conversation(user, at_s=at_s, after=before, think_s=think_s, not_after_s=cut, stage=number)
        return tuple(last.values())

    def _think(self, arrivals: Closed) -> float:
        drawn = self.thinks.exponential() if arrivals.think_spread == "exponential" else 1.0
        return arrivals.think_s * drawn * self.scaling.time

    def _trace(self, arrivals: Trace) -> None:
        if arrivals.file not in self.out.files:
            raise ValueError(f"Stream {self.stream.name}: the file {arrivals.file} was not given.")
        rows = traces.read(self.out.files[arrivals.file].splitlines(), arrivals.format, arrivals.limit)
        for row in rows:
            at_s = (arrivals.start_s + row.at_s / arrivals.playback_speed) * self.scaling.time
            self._request(at_s=at_s, pieces=self._blocks(row), n_predict=self.scaling.output(row.output))

    def _blocks(self, row: traces.Row) -> tuple[Piece, ...]:
        total = self.scaling.prompt(row.prompt)
        pieces: list[Piece] = []
        for block in row.blocks:
            size = min(max(1, round(traces.MOONCAKE_BLOCK * self.scaling.tokens)), total - sum(piece.tokens for piece in pieces))
            if size > 0:
                pieces.append(Piece(f"{self.out.label}:{self.stream.name}:block:{block}", size))
        rest = total - sum(piece.tokens for piece in pieces)
        return (*pieces, self._fresh(rest)) if rest > 0 else tuple(pieces)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _conversation(
        self,
        lane: int,
        *,
        at_s: float | None,
        after: tuple[int, ...] = (),
        think_s: float = 0.0,
        not_after_s: float | None = None,
        stage: int = 0,
    ) -> int:
        """All turns of one arrival; the number of its last request."""
        prompt, output = self.stream.prompt, self.stream.output
        assert prompt is not None
        assert output is not None
        pieces: tuple[Piece | AnswerOf | File, ...] = self._before(prompt, lane)
        request = -1
        for turn in range(self.stream.turns):
            pieces = (*pieces, self._new(prompt))
            n_predict = self.scaling.output(self._draw(output, self.outputs))
            request = self._request(
                at_s=at_s if turn == 0 else None,
                pieces=pieces,
                n_predict=n_predict,
                after=after if turn == 0 else (request,),
                think_s=think_s if turn == 0 else self.stream.turn_think_s * self.scaling.time,
                not_after_s=not_after_s,
                turn=turn,
                stage=stage,
            )
            pieces = (*pieces, AnswerOf(request, n_predict))
        return request

    def _request(
        self,
        *,
        at_s: float | None,
        pieces: tuple[Piece | AnswerOf | File, ...],
        n_predict: int,
        after: tuple[int, ...] = (),
        think_s: float = 0.0,
        not_after_s: float | None = None,
        turn: int = 0,
        stage: int = 0,
    ) -> int:
        number = len(self.out.requests)
        request = Planned(
            number=number,
            stream=self.stream.name,
            at_s=at_s,
            pieces=pieces,
            n_predict=n_predict,
            place=self.count,
            after=after,
            think_s=think_s,
            not_after_s=not_after_s,
            turn=turn,
            slot=self.stream.slot,
            lora=tuple((lora.id, lora.scale) for lora in self.stream.lora),
            client=self.stream.client,
            leave=self._leave(self.stream.cancel_after),
            streamed=self.stream.stream,
            stage=stage,
        )
        self.out.requests.append(request)
        self.count += 1
        return number

    def _before(self, prompt: Prompt, lane: int) -> tuple[Piece, ...]:
        """What stands in front of the new tokens: the warm text and the shared prefix."""
        pieces: list[Piece] = []
        if prompt.warm is not None:
            context = lane % prompt.warm.contexts
            piece = Piece(f"warm:{self.stream.name}:{context}", self.scaling.prompt(prompt.warm.tokens))
            pieces.append(piece)
            self._warm(piece)
        if prompt.prefix is not None:
            group = self.groups.whole(0, prompt.prefix.groups - 1)
            name = prompt.prefix.name or self.stream.name
            pieces.append(Piece(f"{self.out.label}:prefix:{name}:{group}", self.scaling.prompt(prompt.prefix.tokens)))
        return tuple(pieces)

    def _warm(self, piece: Piece) -> None:
        if piece.label not in self.out.warming:
            lora = tuple((each.id, each.scale) for each in self.stream.lora)
            self.out.warming[piece.label] = Planned(
                len(self.out.warming),
                self.stream.name,
                None,
                (piece,),
                1,
                0,
                slot=self.stream.slot,
                lora=lora,
                client=self.stream.client,
            )

    def _new(self, prompt: Prompt) -> Piece | File:
        if self.texts:
            return File(self.texts[self.count % len(self.texts)])
        assert prompt.tokens is not None
        return self._fresh(self.scaling.prompt(self._draw(prompt.tokens, self.prompts)))

    def _fresh(self, tokens: int) -> Piece:
        return Piece(f"{self.out.label}:{self.stream.name}:{self.count}", tokens)

    def _draw(self, amount: Amount, draws: Draws) -> int:
        if amount.range is not None:
            return draws.whole(amount.range.min, amount.range.max)
        if amount.lognormal is not None:
            form = amount.lognormal
            return min(max(round(form.median * math.exp(form.sigma * draws.normal())), form.min), form.max)
        return amount.fixed or 1

    def _leave(self, cancel: Cancel | None) -> Leave | None:
        if cancel is None or self.leaves.uniform() >= cancel.share:
            return None
        if cancel.seconds is not None:
            return Leave(seconds=cancel.seconds * self.scaling.time)
        return Leave(tokens=self.scaling.output(cancel.tokens or 1))


def _stage(arrivals: Stages, at_s: float) -> int:
    ends = accumulate(stage.for_s for stage in arrivals.stages)
    return next((number for number, end in enumerate(ends) if at_s < end), len(arrivals.stages) - 1)


def with_sizes(plan: Plan, tokens_of_texts: Sequence[int]) -> Plan:
    """With the number of tokens that a server makes of each file's text."""

    def sized(request: Planned) -> Planned:
        pieces = tuple(
            replace(piece, tokens=tokens_of_texts[piece.place]) if isinstance(piece, File) else piece for piece in request.pieces
        )
        return replace(request, pieces=pieces)

    return replace(plan, requests=tuple(map(sized, plan.requests)))
