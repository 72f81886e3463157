"""What is asked alone before a load."""

from __future__ import annotations

from workers.load.alone import alone_plan
from workers.load.plan import make_plan
from workers.load.planned import AnswerOf, Scaling
from workers.scenarios.reading import read

TEXT = """
name: two
version: 1
title: Two
summary: Two streams.
written_for: 1000
streams:
  - name: talk
    slot: 1
    turns: 2
    arrivals: {kind: at, times: [0, 1, 2]}
    prompt: {tokens: {range: {min: 100, max: 900}}, warm: {tokens: 50}}
    output: 8
    cancel_after: {seconds: 1}
  - name: long
    arrivals: {kind: closed, concurrency: 1, requests: 2, think_s: 3, for_s: 60}
    prompt: {tokens: 4000}
    output: 4
"""


def test_one_typical_request_of_each_stream_after_the_other() -> None:
    plan = make_plan(read(TEXT), 3, Scaling(), label="alone")
    found = alone_plan(plan)
    talk, long = found.requests
    sizes = sorted(each.n_prompt for each in plan.requests if each.stream == "talk" and each.turn == 0)
    assert (talk.stream, talk.n_prompt, talk.slot) == ("talk", sizes[1], 1)
    assert not any(isinstance(piece, AnswerOf) for piece in talk.pieces)
    assert (talk.number, talk.at_s, talk.after, talk.leave) == (0, 0.0, (), None)
    assert (long.stream, long.number, long.at_s, long.after) == ("long", 1, None, (0,))
    assert (long.think_s, long.not_after_s) == (0.0, None)
    assert found.warming == plan.warming
