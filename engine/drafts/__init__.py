"""Draft models for speculative decoding: what their files say, and what a legacy DFlash draft needs beside an M-RoPE target.

Imports neither the llama.cpp binding nor anything else of the engine; `engine.backends.loading` calls `prepare`.
"""

from __future__ import annotations

from engine.drafts.decide import MODES, Decision, Mode, Outcome, Reason, decide
from engine.drafts.errors import DraftError, DraftInvalid, HeaderError
from engine.drafts.facts import ModelFacts, Rope, facts_of
from engine.drafts.metadata import Header, read_header
from engine.drafts.preparing import Examination, Prepared, examine, prepare

__all__ = [
    "MODES",
    "Decision",
    "DraftError",
    "DraftInvalid",
    "Examination",
    "Header",
    "HeaderError",
    "Mode",
    "ModelFacts",
    "Outcome",
    "Prepared",
    "Reason",
    "Rope",
    "decide",
    "examine",
    "facts_of",
    "prepare",
    "read_header",
]
