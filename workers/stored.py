"""All scenarios by name: those that the product brings along, and the operators' own, which are kept in the database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet

from scheduler_api import audit
from scheduler_api.models import Server
from workers.load.plan import make_plan
from workers.load.planned import Scaling
from workers.load.preview import MOST_DRAWN, count_of
from workers.loadrun import texts_of
from workers.models import Run, StoredScenario
from workers.scenarios import Scenario, ScenarioError, library
from workers.scenarios.editing import change
from workers.scenarios.reading import read
from workers.scenarios.schema import Fault
from workers.scenarios.streams import LoadScenario

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_BYTES = 64 << 10
MOST_STORED = 500
MOST_TITLE = 200
NOT_NAMES = frozenset({"add", "check"})  # addresses of the console


@dataclass(frozen=True, slots=True)
class Entry:
    """`own` None: the library's. `scenario` None: an own one whose text is none any more, and `fault` says why."""

    name: str
    text: str
    scenario: Scenario | LoadScenario | None
    own: StoredScenario | None = None
    fault: str = ""


def entries() -> list[Entry]:
    """The operators' own first, each by name."""
    own = [_own(row) for row in StoredScenario.objects.select_related("changed_by", "created_by")]
    return own + [Entry(name, library.text_of(name), library.find(name)) for name in library.names()]


def entry(name: str) -> Entry:
    """Raises ScenarioError."""
    if name in library.names():
        return Entry(name, library.text_of(name), library.find(name))
    row = StoredScenario.objects.select_related("changed_by", "created_by").filter(name=name).first()
    if row is None:
        raise ScenarioError(f"There is no scenario {name!r}, neither in the library nor among the operators' own.")
    return _own(row)


def _own(row: StoredScenario) -> Entry:
    try:
        return Entry(row.name, row.text, read(row.text, f"{row.name}.yaml"), row)
    except ScenarioError as error:
        return Entry(row.name, row.text, None, row, str(error))


def last_runs(servers: QuerySet[Server]) -> dict[str, Run]:
    """The newest run of each scenario on these servers, by its name."""
    newest = (
        Run.objects.filter(server__in=servers)
        .order_by()
        .values("scenario")
        .annotate(last=Max("pk"))
        .values_list("last", flat=True)
    )
    runs = Run.objects.select_related("server", "created_by").filter(pk__in=list(newest))
    return {run.scenario: run for run in runs}


def checked(text: str, was: StoredScenario | None = None) -> LoadScenario:
    """Raises ScenarioError with `faults`: the schema's, and what only shows in use (a name that is taken, a missing file)."""
    if len(text.encode()) > MOST_BYTES:
        raise _fault("", f"the text is larger than {MOST_BYTES >> 10} KB")
    scenario = read(text)
    taken = StoredScenario.objects.filter(name=scenario.name).exclude(pk=was.pk if was else 0).exists()
    if scenario.name in library.names() or scenario.name in NOT_NAMES or taken:
        raise _fault("name", f"name must be another one: {scenario.name!r} is taken", _line_of(text, "name"))
    if len(scenario.title) > MOST_TITLE:
        raise _fault("title", f"title must have at most {MOST_TITLE} characters", _line_of(text, "title"))
    try:
        files = texts_of(scenario)
        if count_of(scenario) <= MOST_DRAWN:
            make_plan(scenario, 0, Scaling(), files)
    except (ScenarioError, ValueError) as error:
        raise _fault("streams", str(error).rstrip(".")) from None
    return scenario


def _fault(field: str, text: str, line: int = 1) -> ScenarioError:
    return ScenarioError(f"{text[:1].upper()}{text[1:]}.", (Fault(line, field, text),))


def _line_of(text: str, key: str) -> int:
    found = re.search(rf"^{key}\s*:", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def save(text: str, by: User, was: StoredScenario | None = None, copied_from: str = "") -> StoredScenario:
    """A new one, or `was` with another text and perhaps name. Raises ScenarioError."""
    text = text.replace("\r\n", "\n")
    scenario = checked(text, was)
    if was is None and StoredScenario.objects.count() >= MOST_STORED:
        raise ScenarioError(f"There are {MOST_STORED} scenarios already; delete one that nobody needs.")
    kept = was or StoredScenario(created_by=by, copied_from=copied_from)
    before = {"name": kept.name, "text": kept.text} if was else None
    kept.name, kept.text, kept.title, kept.changed_by = scenario.name, text, scenario.title, by
    try:
        with transaction.atomic():
            kept.save()
            action = "scenario.changed" if was else "scenario.added"
            audit.record(action, kept.name, actor=by, before=before, after={"name": kept.name, "text": text})
    except IntegrityError:  # somebody took the name just now
        raise _fault("name", f"name must be another one: {scenario.name!r} is taken", _line_of(text, "name")) from None
    return kept


def delete(own: StoredScenario, by: User) -> None:
    """Runs of it keep the text that they were started with."""
    with transaction.atomic():
        audit.record("scenario.deleted", own.name, actor=by, before={"name": own.name, "text": own.text})
        own.delete()


def copy(name: str, by: User) -> StoredScenario:
    """Under the first free name, `name-2` and so on. Raises ScenarioError."""
    found = entry(name)
    if isinstance(found.scenario, Scenario):
        raise ScenarioError(f"The scenario {name} has a form of its own and is not copied; its sizes follow the scale.")
    taken = {*library.names(), *StoredScenario.objects.values_list("name", flat=True)}
    base = re.sub(r"-\d+$", "", name)[:36]
    free = next(f"{base}-{number}" for number in range(2, MOST_STORED + 3) if f"{base}-{number}" not in taken)
    return save(change(found.text, {"name": free}), by, copied_from=name)
