"""The generator against an OpenAI-compatible server over real sockets: its streams as they are in the field, what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.stub_openai import TEMPLATE_TOKENS, TOKENS_A_WORD, FakeOpenAi
from tests.support.stub_servers import running
from workers import speaking
from workers.errors import RunFailed, RunStopped
from workers.load.clock import ClientClock
from workers.load.http import Wire
from workers.load.openai import CHAT, COMPLETIONS, Manner, OpenAi
from workers.load.planned import Leave, Piece, Plan, Planned
from workers.load.reading import Answer, Outcome
from workers.load.runner import CHECK_EVERY, Runner


@pytest.fixture
def server() -> Iterator[FakeOpenAi]:
    with running(FakeOpenAi(api_key="right")) as found:
        yield found


def sent(server: FakeOpenAi, manner: Manner, *requests: Planned) -> list[Answer]:
    async def send() -> list[Answer]:
        async with Wire(server.url, "right") as wire:
            load = await Runner(wire, OpenAi(1, "small", manner=manner), ClientClock()).run(Plan(requests, ()))
            return [record.answer for record in load.records]

    return asyncio.run(send())


def request(tokens: int = 20, output: int = 4, **more: Any) -> Planned:
    return Planned(0, "one", 0.0, (Piece("x", tokens),), output, 0, **more)


def test_a_chat_as_in_the_field_is_timed_by_its_first_token_of_any_kind(server: FakeOpenAi) -> None:
    """A comment and a chunk with the role alone come first, then a thought, content, the reason of the end, and the usage."""
    server.gap_s = 0.01
    (answer,) = sent(server, Manner(CHAT), request())
    assert (answer.outcome, answer.n_generated, answer.tokens_from) == (Outcome.OK, 4, "usage")
    assert answer.n_prompt == TEMPLATE_TOKENS + 20 * TOKENS_A_WORD
    assert answer.first_byte_at is not None
    assert answer.first_token_at is not None
    assert answer.first_content_at is not None
    assert answer.first_byte_at < answer.first_token_at < answer.first_content_at
    assert len(answer.chunks) == 4


def test_token_ids_are_counted_as_they_were_sent_and_without_usage_events_are(server: FakeOpenAi) -> None:
    (answer,) = sent(server, Manner(COMPLETIONS, "ids"), request())
    assert (answer.n_prompt, answer.n_generated, answer.tokens_from) == (20, 4, "usage")
    server.tells_usage = False
    (answer,) = sent(server, Manner(COMPLETIONS, "ids"), request())
    assert (answer.n_prompt, answer.n_generated, answer.tokens_from) == (None, 4, "counted")
    (whole,) = sent(server, Manner(CHAT), request(streamed=False))
    assert (whole.outcome, whole.first_token_at, whole.done_at is not None) == (Outcome.OK, None, True)


def test_an_error_in_the_stream_and_a_client_that_leaves_have_their_outcomes(server: FakeOpenAi) -> None:
    server.fails_after = 2
    (answer,) = sent(server, Manner(CHAT), request())
    assert (answer.outcome, answer.error, len(answer.chunks)) == (Outcome.FAILED, "The server reported: out of memory", 2)
    server.fails_after, server.gap_s = None, 0.02
    (answer,) = sent(server, Manner(CHAT), request(output=200, leave=Leave(tokens=3)))
    assert (answer.outcome, len(answer.chunks)) == (Outcome.CANCELLED, 3)


def find(server: FakeOpenAi, *, ids: bool = True) -> Manner:
    return speaking.find(lambda manner, tokens: sent(server, manner, request(tokens, 1))[0], ids=ids)


def test_what_it_takes_is_found_out_by_its_own_answers(server: FakeOpenAi) -> None:
    assert find(server) == Manner(COMPLETIONS, "ids")
    server.refuses, server.mute = ("ignore_eos",), True
    assert find(server) == Manner(COMPLETIONS, "ids", ("ignore_eos",))
    server.takes = {"chat", "text"}
    assert find(server) == Manner(CHAT, "text", ("ignore_eos",), float(TOKENS_A_WORD))
    server.takes = {"text"}
    assert find(server) == Manner(COMPLETIONS, "text", ("ignore_eos",), float(TOKENS_A_WORD))
    server.tells_usage = False
    assert find(server) == replace(Manner(COMPLETIONS, "text", ("ignore_eos",)), counted=False)
    server.takes = set()
    with pytest.raises(RunFailed, match="The server answered 400: "):
        find(server)


def test_a_limit_of_the_newer_name_is_used_where_the_older_one_is_refused(server: FakeOpenAi) -> None:
    server.takes, server.refuses = {"chat"}, ("max_tokens", "temperature", "ignore_eos")
    found = find(server)
    assert set(found.refused) == {"max_tokens", "temperature", "ignore_eos"}
    (answer,) = sent(server, found, request())
    assert answer.n_generated == 4
    assert set(server.asked[-1].body) == {"model", "messages", "max_completion_tokens", "stream", "stream_options"}


def test_a_stop_ends_the_making_of_bodies_too(server: FakeOpenAi) -> None:
    """A million of them take a minute."""
    looks: list[int] = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise RunStopped

    requests = tuple(replace(request(), number=number) for number in range(5 * CHECK_EVERY))
    runner = Runner(Wire(server.url), OpenAi(1, "small"), ClientClock())
    with pytest.raises(RunStopped):
        runner.prepare(Plan(requests, ()), check)
    runner.prepare(Plan(requests, ()), lambda: looks.append(1))
    assert len(looks) == 3 + 5
