"""The list of experiments: which runs are asked for, and each as a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Q, QuerySet

from dashboard import arms, present, results, run_page
from scheduler_api.models import Server
from workers import selectors
from workers.analysis import summary
from workers.models import Run, RunState

A_PAGE = 25
STATES = {
    "active": (RunState.WAITING, RunState.QUEUED, RunState.RUNNING, RunState.STOPPING),
    "finished": (RunState.FINISHED,),
    "broken": (RunState.STOPPED, RunState.FAILED, RunState.LOST),
}
STATE_WORDS = (("", "any state"), ("active", "not over"), ("finished", "finished"), ("broken", "stopped, failed, lost"))


@dataclass(frozen=True, slots=True)
class Filters:
    """As the address has them; "" is no filter."""

    scenario: str
    server: str
    by: str
    state: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        return cls(*(query.get(name, "").strip()[:80] for name in ("scenario", "server", "by", "state")))

    @property
    def any(self) -> bool:
        return bool(self.scenario or self.server or self.by or self.state)

    @property
    def query(self) -> str:
        """For the addresses of the other pages of the same list."""
        told = {name: getattr(self, name) for name in ("scenario", "server", "by", "state") if getattr(self, name)}
        return urlencode(told) + "&" if told else ""


def find(filters: Filters, visible: QuerySet[Server]) -> QuerySet[Run]:
    """Newest first; runs of servers that may be seen, and those that came from files."""
    rows = Run.objects.select_related("server", "created_by").filter(Q(server__in=visible) | Q(server=None))
    if filters.scenario:
        rows = rows.filter(scenario=filters.scenario)
    if filters.server:
        rows = rows.filter(server__name=filters.server)
    if filters.by:
        rows = rows.filter(created_by__username=filters.by)
    if filters.state in STATES:
        rows = rows.filter(state__in=STATES[filters.state])
    return rows


def choices(visible: QuerySet[Server]) -> dict[str, list[str]]:
    """What each filter can be, of the runs that may be seen."""
    rows = find(Filters("", "", "", ""), visible).order_by()
    columns = {"scenario": "scenario", "server": "server__name", "by": "created_by__username"}
    return {
        name: sorted(filter(None, rows.values_list(column, flat=True).distinct()), key=str.lower)
        for name, column in columns.items()
    }


def page(rows: QuerySet[Run], number: str) -> Page[Run]:
    """The page asked for, the nearest one there is else."""
    return Paginator(rows, A_PAGE).get_page(number)


def entry(run: Run) -> dict[str, Any]:
    state = run_page.state_of(run)
    return {
        "run": run,
        "title": arms.title(*selectors.arm_labels(run)),
        "scenario": run.scenario.replace("-", " "),
        "mark": state.mark,
        "tone": state.tone,
        "word": state.word,
        "verdict": present.unbroken(verdict_of(run)),
        "no_verdict": (run.progress_text or "not begun") if run.active else run.error or "no pair is complete",
    }


def verdict_of(run: Run) -> str:
    return _verdict(run) if run.active else _ended_verdict(run.pk, run.created_at)


def _verdict(run: Run) -> str:
    if run.state in (RunState.WAITING, RunState.QUEUED):
        return ""
    if run.scenario_text:
        found = selectors.results(run)
        return str(found["verdict"]) if found["complete_pairs"] else ""
    return results.short_verdict(summary.measure("short_wall", selectors.complete_pairs(run)).ratio)


@lru_cache(maxsize=2000)
def _ended_verdict(pk: int, created_at: datetime) -> str:
    """The samples of a run that is over do not change any more; its birth tells it from one whose number is reused."""
    return _verdict(selectors.get_run(pk))
