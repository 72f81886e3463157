"""A run as a gate for scripts: arms in few words, waiting for its end, and what was demanded of its result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from workers import selectors
from workers.analysis.assertions import Answer, Demand, judge
from workers.analysis.naming import CLIENT
from workers.measure_rows import all_measures
from workers.models import Run, RunState
from workers.scenarios import Scenario
from workers.scenarios.streams import LoadScenario

type Policy = dict[str, Any]

LOOK_S = 0.5
STOP_S = 20.0  # how long a run that was asked to stop may take before the script gives up on it
#: words that say which field they are a value of
VALUES = {
    "prefill_order": ("physical", "rotating", "fair", "shortest_first"),
    "phase": ("continuous", "barrier"),
}
FIELD_OF = {value: field for field, values in VALUES.items() for value in values}
AS_IS = "as-is"  # an arm that changes nothing, for servers that cannot switch
PAIR_ARMS: tuple[Policy, Policy] = ({"prefill_order": "physical"}, {"prefill_order": "rotating"})  # of warm-behind-cold


class ArmFault(ValueError):
    """The message is a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`answers` to each assertion; `failure`: why there is no result to judge, or nothing."""

    run: Run
    results: dict[str, Any]
    answers: tuple[Answer, ...]
    failure: str = ""

    @property
    def code(self) -> int:
        """Of the process: 0 all met, 1 not all, 2 no result."""
        if self.failure:
            return 2
        return 0 if all(answer.met for answer in self.answers) else 1

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run.pk,
            "state": self.run.state,
            "scenario": self.run.scenario,
            "server": self.run.server.name,
            "seed": self.run.seed,
            "code": self.code,
            "failure": self.failure,
            "assertions": [asdict(answer) for answer in self.answers],
            "result": {name: value for name, value in self.results.items() if name != "timelines"},
        }


def own_arms(scenario: Scenario | LoadScenario) -> tuple[Policy, Policy]:
    """The two that a scenario suggests."""
    return (scenario.arms.a, scenario.arms.b) if isinstance(scenario, LoadScenario) else PAIR_ARMS


def arms_of(text: str, scenario: Scenario | LoadScenario) -> tuple[Policy, Policy]:
    """From "A,B", "physical,rotating", "prefill_order=fair+decode_share=0.5,physical". Raises ArmFault.

    An arm is a letter (the scenario's own arm of that letter), "as-is" (nothing is changed), or fields joined with "+"; the field
    of a word such as `rotating` need not be said.
    """
    sides = [side.strip() for side in text.split(",")]
    if len(sides) != 2 or not all(sides):
        raise ArmFault(f"--arms needs two arms with a comma between, such as A,B or physical,rotating, not {text!r}.")
    own = {**dict(zip("AB", own_arms(scenario), strict=True)), AS_IS: {}}
    a, b = (own[side] if side in own else _policy(side) for side in sides)
    return a, b


def _policy(text: str) -> Policy:
    found: Policy = {}
    for part in text.split("+"):
        field, given, value = (piece.strip() for piece in part.partition("="))
        if not given:
            field, value = FIELD_OF.get(field, ""), field
        if not field or not value:
            raise ArmFault(
                f"{part!r} is no arm: write A or B for the scenario's own, {AS_IS} for none, a word ({', '.join(FIELD_OF)}), or "
                "field=value, several of them joined with +."
            )
        if field in found:
            raise ArmFault(f"The arm {text!r} sets {field} twice.")
        found[field] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def whos(scenario: Scenario | LoadScenario) -> list[str]:
    """Whom assertions may ask about: streams, and clients with their prefix."""
    if not isinstance(scenario, LoadScenario):
        return list(selectors.ROLES)
    clients = dict.fromkeys(stream.client for stream in scenario.streams if stream.client)
    return [*(stream.name for stream in scenario.streams), *(f"{CLIENT}{client}" for client in clients)]


class Waiting:
    """Looks at a run until it is over. `interrupt` may be called from a signal's handler: it only leaves a mark."""

    def __init__(self, run: Run, say: Callable[[str], None], limit_s: float | None, stop: Callable[[Run], None]) -> None:
        self._run, self._say, self._stop = run, say, stop
        self._deadline = None if limit_s is None else time.monotonic() + limit_s
        self._interrupted = False

    def interrupt(self) -> None:
        self._interrupted = True

    def to_the_end(self) -> str:
        """Why it was not waited for, or nothing. The run is then stopped, and given STOP_S seconds to end by itself."""
        told, why, given_up = "", "", 0.0
        while self._run.active:
            if self._run.progress_text and self._run.progress_text != told:
                told = self._run.progress_text
                self._say(told)
            if not why and (why := self._why()):
                self._stop(self._run)
                given_up = time.monotonic() + STOP_S
            elif why and time.monotonic() > given_up:
                break
            time.sleep(LOOK_S)
            self._run.refresh_from_db()
        return why

    def _why(self) -> str:
        if self._interrupted:
            return "it was interrupted"
        late = self._deadline is not None and time.monotonic() > self._deadline
        return "it took longer than allowed" if late else ""


def judged(run: Run, demands: Iterable[Demand], not_waited: str = "") -> Judged:
    """`not_waited`: why its end was not waited for. Raises AssertionFault on a demand about what the result does not have."""
    found = selectors.results(run)
    if not_waited or run.state != RunState.FINISHED:
        why = not_waited or run.error or run.stop_reason or f"it is {run.state}"
        return Judged(run, found, (), f"Run {run.pk} has no result to judge: {why.rstrip('.')}.")
    if not found["complete_pairs"]:
        return Judged(run, found, (), f"Run {run.pk} has no complete pair of blocks.")
    return Judged(run, found, tuple(judge(demand, all_measures(found)) for demand in demands))
