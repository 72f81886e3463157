"""What a target cannot do of what is asked: told beside the form, and refused when a run is started, from one check.

The worker looks again when the run begins (`workers.checks`, `workers.load.dialects.lacks`): a server can change until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler_api import policies
from scheduler_api.exceptions import SchedulerApiError, SwitchRefused
from scheduler_api.models import Server, ServerKind
from workers import target
from workers.checks import check_server
from workers.errors import RunFailed
from workers.load.dialects import Lack, lacks
from workers.load.planned import Plan
from workers.scenarios import Scenario, Sizes
from workers.scenarios.streams import LoadScenario
from workers.survey import survey
from workers.switching import CONFLICT

type Arms = Mapping[str, dict[str, Any]]


def of_pair(server: Server, scenario: Scenario, sizes: Sizes, arms: Arms) -> list[Lack]:
    """For warm-behind-cold. Asks the server; one that does not answer is a lack too."""
    if not server.enabled:
        return [_switched_off(server)]
    if server.kind != ServerKind.ENGINE:
        return [_fixed(server)]
    try:
        setup = check_server(target.state(server), scenario, sizes)
        return [*_arms(server, arms, setup.policy["version"]), *(Lack(text, False) for text in setup.warnings)]
    except (RunFailed, SchedulerApiError) as error:
        return [Lack(error.text, True)]


def of_load(server: Server, scenario: LoadScenario, plan: Plan, arms: Arms, *, scale_known: bool) -> list[Lack]:
    """For a scenario made of streams. `scale_known`: `plan` has the sizes that will be sent, so context can be judged."""
    if not server.enabled:
        return [_switched_off(server)]
    try:
        found = survey(server, adapters=scenario.adapters_needed > 0)
        can = found.can if scale_known else replace(found.can, n_ctx=None)
        told = lacks(scenario, plan, can, arms_differ=arms["A"] != arms["B"])
        if found.policy is not None:
            told += _arms(server, arms, found.policy["version"])
        elif any(arms.values()) and arms["A"] == arms["B"]:
            told.append(_fixed(server))
    except (RunFailed, SchedulerApiError) as error:
        return [Lack(error.text, True)]
    if found.policy is None and not any(arms.values()):
        told.append(
            Lack(f"{found.can.what} cannot switch policies, so both arms are alike: they tell what chance alone does.", False)
        )
    if found.doubt:
        told.append(Lack(found.doubt, False))
    if found.busy:
        slots = ", ".join(map(str, found.busy))
        told.append(Lack(f"Slot{'s' if len(found.busy) > 1 else ''} {slots} have other work now; times would include it.", False))
    return sorted(told, key=lambda lack: not lack.fatal)


def _arms(server: Server, arms: Arms, version: int) -> list[Lack]:
    """Lets the server itself say whether it knows these fields and values; it changes nothing."""
    told = []
    for arm, changes in arms.items():
        try:
            if changes:
                policies.dry_run(server, changes, version)
        except SwitchRefused as error:
            if error.status != CONFLICT:  # somebody switched just now, which says nothing about this arm
                told.append(Lack(f"Arm {arm}: {error.text}", True))
    return told


def _switched_off(server: Server) -> Lack:
    return Lack(f"{server.name} is switched off in the registry.", True)


def _fixed(server: Server) -> Lack:
    return Lack(f"{server.name} cannot switch policies: its scheduling is fixed when it starts.", True)
