"""The form of a new experiment: what was asked. What it would send is in `dashboard.load_plan`, where in `dashboard.targets`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from django.utils import timezone

from dashboard import arms
from workers import stored
from workers.analysis.order import ABBA, ORDERS, default_floor
from workers.experiments import MOST_FLOOR, MOST_REPETITIONS, MOST_SHARDS
from workers.loadrun import MOST_SEED
from workers.models import Run
from workers.scenarios import Scenario, ScenarioError
from workers.scenarios.reading import read as read_scenario
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN
from workers.scenarios.streams import LoadScenario
from workers.stored import Entry

SCENARIO = "warm-behind-cold"
OF_RUN = "run-"  # "run-12 mine": the scenario as that run had it; no name of a scenario holds a space
NUMBERS = {"repetitions": "8", "scale": "1.0", "share": "0.1", "seed": "", "shards": "1", "floor": ""}


@dataclass(slots=True)
class Asked:
    """What the form says. `problems` are sentences about fields that hold nothing usable."""

    entry: Entry
    server: int | None
    repetitions: int
    scale: float | Literal["auto"]
    share: float
    seed: int | None
    shards: int
    order: str | None  # None: the scenario's own, as usual
    floor: int | None
    wait: bool
    not_before: datetime | None
    values: dict[str, str]  # as typed
    sent: Mapping[str, Any]  # everything, for the arms
    copied: Run | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario | LoadScenario | None:
        return self.entry.scenario

    @property
    def is_pair(self) -> bool:
        """Whether it has the form of warm-behind-cold, which takes a share and no shards."""
        return isinstance(self.entry.scenario, Scenario)

    def blocks(self, *, equal_arms: bool) -> tuple[str, int]:
        """(order, floor) as a start would choose them."""
        own = self.entry.scenario.blocks if isinstance(self.entry.scenario, LoadScenario) else None
        order = self.order or (own.order if own else None) or ABBA
        floor = self.floor if self.floor is not None else own.floor if own else None
        return order, default_floor(self.repetitions, equal_arms=equal_arms) if floor is None else floor

    @property
    def of_run(self) -> bool:
        return self.copied is not None and self.values["scenario"] == _of_run(self.copied)


def read(sent: Mapping[str, Any], copied: Run | None = None) -> Asked:
    """From a query or a posted form; `copied` is the run to take what is missing from."""
    problems: list[str] = []
    chosen = str(sent.get("scenario") or (_default_scenario(copied) if copied else SCENARIO))
    entry = _entry(chosen, copied, problems)
    fallback = _fallback(entry, copied)
    if copied is not None:
        sent = {**_arm_fields({"a": copied.policy_a, "b": copied.policy_b}), **sent}
    elif not any(key[:2] in ("a-", "b-") for key in sent):
        sent = {**_arm_fields(_suggested(entry)), **sent}
    values = {key: str(sent.get(key, fallback[key])).strip() for key in NUMBERS}
    values |= {"order": str(sent.get("order", fallback["order"]))}
    values |= {"scenario": chosen, "not_before": str(sent.get("not_before", "")).strip()}
    values["wait"] = str(sent.get("wait", "" if "repetitions" in sent else fallback["wait"]))
    server = str(sent.get("server", fallback["server"]))
    auto = values["scale"].lower() == "auto" and isinstance(entry.scenario, LoadScenario)
    return Asked(
        entry=entry,
        server=int(server) if server.isdecimal() else None,
        repetitions=int(_number(values, "repetitions", "Pairs", 1, MOST_REPETITIONS, problems, whole=True)),
        scale="auto" if auto else _number(values, "scale", "Scale", SCALE_MIN, SCALE_MAX, problems),
        share=_number(values, "share", "The share", 0.0, 0.9, problems),
        seed=int(_number(values, "seed", "The seed", 0, MOST_SEED - 1, problems, whole=True)) if values["seed"] else None,
        shards=int(_number(values, "shards", "Shards", 1, MOST_SHARDS, problems, whole=True)),
        order=values["order"] if values["order"] in ORDERS else None,
        floor=int(_number(values, "floor", "Floor", 0, MOST_FLOOR, problems, whole=True)) if values["floor"] else None,
        wait=bool(values["wait"]),
        not_before=_moment(values["not_before"], problems),
        values=values,
        sent=sent,
        copied=copied,
        problems=problems,
    )


def _entry(name: str, copied: Run | None, problems: list[str]) -> Entry:
    if copied is not None and name == _of_run(copied):
        return Entry(copied.scenario, copied.scenario_text, read_scenario(copied.scenario_text, f"{copied.scenario}.yaml"))
    try:
        found = stored.entry(name)
    except ScenarioError as error:
        problems.append(str(error))
        return stored.entry(SCENARIO)
    if found.scenario is None:
        problems.append(found.fault)
    return found


def _of_run(run: Run) -> str:
    return f"{OF_RUN}{run.pk} {run.scenario}"


def _default_scenario(run: Run) -> str:
    """By name where the scenario is still what the run had, else as the run had it."""
    try:
        same = stored.entry(run.scenario).text == run.scenario_text
    except ScenarioError:
        same = False
    return run.scenario if same or not run.scenario_text else _of_run(run)


def run_choice(copied: Run | None) -> tuple[str, str] | None:
    """The choice of the scenario as a run had it, where it has changed since or is gone: (value, words)."""
    if copied is None or _default_scenario(copied) != _of_run(copied):
        return None
    return _of_run(copied), f"{copied.scenario}, as run {copied.pk} had it"


def _fallback(entry: Entry, copied: Run | None) -> dict[str, Any]:
    own = entry.scenario.scale if isinstance(entry.scenario, LoadScenario) else 1.0
    fallback: dict[str, Any] = {**NUMBERS, "scale": own if own == "auto" else f"{own:g}" if own != 1.0 else "1.0"}
    fallback |= {"server": "", "wait": "yes", "order": ""}
    if copied is not None and copied.scenario == entry.name:
        fallback |= {"scale": "auto" if copied.scale_auto else f"{copied.scale:g}", "share": f"{copied.share:g}"}
    if copied is not None:
        fallback |= {"repetitions": copied.repetitions, "shards": copied.shards, "server": copied.server_id or ""}
        fallback |= {"order": copied.order, "floor": copied.floor}
    return fallback


def _suggested(entry: Entry) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(entry.scenario, LoadScenario):
        return {"a": entry.scenario.arms.a, "b": entry.scenario.arms.b}
    return {arm.lower(): policy for arm, policy in arms.DEFAULTS.items()}


def _arm_fields(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{arm}-{name}": value for arm, policy in policies.items() for name, value in policy.items()}


def _number(
    values: Mapping[str, str], name: str, label: str, low: float, high: float, problems: list[str], whole: bool = False
) -> float:
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if math.isfinite(value) and low <= value <= high and not (whole and value != int(value)):
        return value
    kind = "a whole number" if whole else "a number"
    problems.append(f"{label} must be {kind} from {low:g} to {high:g}; it is {values[name] or 'empty'}.")
    return float(NUMBERS[name] or 0)


def _moment(text: str, problems: list[str]) -> datetime | None:
    """A local date and time of the console's time zone, as browsers send it."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problems.append(f"The time to start must be a date and a time; it is {text}.")
        return None
    moment = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    if moment <= timezone.now():
        problems.append("The time to start is over. Leave it empty to start now.")
    return moment
