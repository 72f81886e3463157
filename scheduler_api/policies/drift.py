"""Who changed a policy that this console did not: told from what was known and what is there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

type Json = Mapping[str, Any]

#: The words of the engine when a deadline has passed.
AT_DEADLINE = "went back at its deadline"


class Happened(StrEnum):
    SAME = "same"  # nothing that is to be told
    LEARNED = "learned"  # it is seen for the first time, or a restart brought the same policy
    DEADLINE = "deadline"  # the server itself went back, as it was asked to
    RESTART = "restart"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Known:
    version: int
    requested: Json
    reverts_to: Json | None = None
    started_at: float | None = None

    @property
    def stays(self) -> Json:
        """What was to be in force for good: a policy set for a time goes back."""
        return self.requested if self.reverts_to is None else self.reverts_to


def judge(known: Known | None, policy: Json, started_at: float | None) -> Happened:
    """`policy`: as the server reports it; `started_at`: of its process. A change of the console's own is looked for before."""
    if known is None:
        return Happened.LEARNED
    version, requested = policy["version"], policy["requested"]
    restarted = started_at is not None and known.started_at is not None and started_at != known.started_at
    if restarted or version < known.version:
        return Happened.LEARNED if requested == known.stays else Happened.RESTART
    if version == known.version:
        return Happened.SAME if known.started_at is not None or started_at is None else Happened.LEARNED
    if known.reverts_to is not None and requested == known.reverts_to and policy.get("reason") == AT_DEADLINE:
        return Happened.DEADLINE
    return Happened.ELSEWHERE
