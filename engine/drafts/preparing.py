"""From two paths to a draft that llama.cpp may open: what the headers say, what follows, the overlay where one is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from engine.drafts.decide import SECTIONS_KEY, Decision, Mode, Outcome, judge
from engine.drafts.errors import DraftInvalid
from engine.drafts.facts import ModelFacts, facts_of
from engine.drafts.metadata import Header, read_header
from engine.drafts.overlay import Overlay, open_overlay


@dataclass(frozen=True, slots=True)
class Side:
    """One file of a pair: its header, and what it says."""

    header: Header
    facts: ModelFacts


@dataclass(frozen=True, slots=True)
class Examination:
    """Both headers and what follows; nothing was copied or loaded."""

    target: Side
    draft: Side
    mode: Mode
    decision: Decision


class Prepared:
    """`path` is for llama.cpp, in this process, until `close`; a model loaded from it lives on. `draft` is the file behind it.

    with prepare(target, draft) as prepared:
        model = load(prepared.path)
    """

    def __init__(self, draft: Path, decision: Decision, overlay: Overlay | None) -> None:
        self.draft = draft
        self.decision = decision
        self._overlay = overlay
        self.path = overlay.path if overlay is not None else draft

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.decision.warnings

    def close(self) -> None:
        if self._overlay is not None:
            self._overlay.close()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def examine(target: Path, draft: Path, mode: Mode = "auto") -> Examination:
    """Reads both headers and decides. Raises HeaderError where a header cannot be read; an invalid draft is a decision."""
    ours, theirs = _side(target), _side(draft)
    return Examination(ours, theirs, mode, judge(ours.facts, theirs.facts, mode))


def prepare(target: Path, draft: Path, mode: Mode = "auto") -> Prepared:
    """A draft for this target, adapted in memory where the rule says so. The file itself is never changed.

    Raises DraftError with one sentence: HeaderError, DraftInvalid, or no room for the copy. Nothing is left behind then.
    """
    decision = examine(target, draft, mode).decision
    if decision.outcome is Outcome.INVALID:
        raise DraftInvalid(decision.text)
    if not decision.adapts or decision.sections is None:
        return Prepared(draft, decision, None)
    return Prepared(draft, decision, open_overlay(draft, SECTIONS_KEY, decision.sections))


def _side(path: Path) -> Side:
    header = read_header(path)
    return Side(header, facts_of(header))
