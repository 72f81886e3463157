"""What each policy field did in the last experiments on a server, in the words of their results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from scheduler_api.models import Server
from workers import selectors
from workers.models import Run, RunState

#: Runs that are looked through, newest first, and how many of a field are told.
LOOKED_AT, TOLD = 60, 2


@dataclass(frozen=True, slots=True)
class Effect:
    """`text` is a sentence: "Under rotating the short request finished 2.7 times sooner (2.5 to 2.9)."."""

    run: int
    text: str


def effects(server: Server) -> dict[str, list[Effect]]:
    """By policy field: the newest finished runs whose arms differ in it, and the one that measures it now."""
    found: dict[str, list[Effect]] = defaultdict(list)
    for run in selectors.list_runs(server, LOOKED_AT):
        for name in _apart(run):
            if len(found[name]) >= TOLD:
                continue
            if run.active:
                found[name].append(Effect(run.pk, "It is measuring it now."))
            elif run.state == RunState.FINISHED and (said := _verdict(run.pk, run.created_at)):
                found[name].append(Effect(run.pk, said))
    return dict(found)


def _apart(run: Run) -> list[str]:
    """The fields that set the arms apart."""
    names = {*run.policy_a, *run.policy_b}
    return sorted(name for name in names if run.policy_a.get(name) != run.policy_b.get(name))


@lru_cache(maxsize=512)
def _verdict(pk: int, created_at: datetime) -> str:
    """A finished run changes no more; its birth tells it from one whose number is used again. "" without a complete pair."""
    found = selectors.results(selectors.get_run(pk))
    return str(found["verdict"]) if found["complete_pairs"] else ""
