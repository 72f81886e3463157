"""Example states in the shape of docs/protocol.md, to look at pages without an engine: a small made-up server that moves.

`FakeServer` plays prompts and generation over slots, roughly as a scheduler would, so that slots, iterations, figures and marks
of one state agree with each other. `examples()` gives one of each kind of state a page must show.
"""

from __future__ import annotations

from tests.support.sample_states.examples import EXAMPLES, down, example, examples, vllm
from tests.support.sample_states.server import FakeServer
from tests.support.sample_states.words import CLIENTS, FIELDS, STOCK_MISSING, STOCK_WHY, Json

__all__ = [
    "CLIENTS",
    "EXAMPLES",
    "FIELDS",
    "STOCK_MISSING",
    "STOCK_WHY",
    "FakeServer",
    "Json",
    "down",
    "example",
    "examples",
    "vllm",
]
