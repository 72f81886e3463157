"""Starting and stopping experiments."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.db import IntegrityError, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from scheduler_api import audit
from scheduler_api.models import Server
from workers import preflight, queueing, runlog
from workers.analysis.order import ABBA, ORDERS, default_floor
from workers.errors import BrokerDown, ExperimentRefused
from workers.load.dialects import Lack
from workers.load.plan import make_plan
from workers.load.planned import Scaling
from workers.loadrun import MOST_SEED, texts_of
from workers.models import Run, RunState
from workers.pair import checked, is_pair, plan_of
from workers.queueing import RUN_TASK, send
from workers.scenarios import ScenarioError, library
from workers.scenarios.reading import read
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["RUN_TASK", "ExperimentRefused", "plan_of", "request_stop", "send", "start_run"]

MOST_REPETITIONS = 100
MOST_FLOOR = 20
MOST_SHARDS = 64


@dataclass(frozen=True, slots=True)
class When:
    """`not_before`: a moment to wait for. `wait`: behind a run that has the server, which otherwise refuses a second one."""

    not_before: datetime | None = None
    wait: bool = False

    @property
    def later(self) -> bool:
        return self.not_before is not None and self.not_before > timezone.now()


def start_run(
    *,
    scenario: str,
    server: Server,
    policy_a: dict[str, Any],
    policy_b: dict[str, Any],
    repetitions: int,
    scale: float | Literal["auto"] | None,
    share: float | None,
    by: User | None,
    text: str = "",
    shards: int = 1,
    not_before: datetime | None = None,
    wait: bool = False,
    seed: int | None = None,
    order: str | None = None,
    floor: int | None = None,
) -> Run:
    """Queues a run, once everything that can be checked beforehand holds. `share` None takes the scenario's, `scale` None its
    own.

    `text`: the YAML of a scenario made of streams, in place of the library's of that name. `shards`: worker slots over which
    such a load is spread. `not_before` (aware): the run waits for this moment. `wait`: when another run has the server, this one
    waits behind it. `seed`: of an earlier run, for the same load again; drawn when there is none. `order` of the blocks and
    `floor`, pairs with arm A on both sides before them (workers.analysis.order): None takes the scenario's, else "abba" and the
    default floor. Raises ExperimentRefused; then no run exists.
    """
    if not_before is not None and timezone.is_naive(not_before):
        raise ExperimentRefused("The moment to wait for needs a time zone.")
    if seed is not None and not 0 <= seed < MOST_SEED:
        raise ExperimentRefused(f"The seed must lie between 0 and {MOST_SEED - 1}, not {seed}.")
    when = When(not_before, wait)
    if text or not is_pair(scenario):
        return _start_load(scenario, text, server, policy_a, policy_b, repetitions, scale, by, shards, when, seed, (order, floor))
    if shards != 1:
        raise ExperimentRefused(f"The scenario {scenario} sends two requests at a time, so it cannot be spread over shards.")
    if scale == "auto":
        raise ExperimentRefused(f"The scenario {scenario} takes a number as its scale.")
    scale = 1.0 if scale is None else scale
    plan, sizes = checked(scenario, scale)
    share = plan.share if share is None else share
    _check_numbers(repetitions, share)
    _refuse_second(server, when)
    _refuse(preflight.of_pair(server, plan, sizes, {"A": policy_a, "B": policy_b}))
    return _queue(
        when,
        scenario=scenario,
        server=server,
        policy_a=policy_a,
        policy_b=policy_b,
        repetitions=repetitions,
        scale=scale,
        share=share,
        seed=seed,
        created_by=by,
        **_blocks(order, floor, repetitions, equal_arms=policy_a == policy_b),
    )


def _start_load(
    name: str,
    text: str,
    server: Server,
    policy_a: dict[str, Any],
    policy_b: dict[str, Any],
    repetitions: int,
    scale: float | Literal["auto"] | None,
    by: User | None,
    shards: int,
    when: When,
    seed: int | None,
    wanted: tuple[str | None, int | None],
) -> Run:
    """A scenario made of streams: from its text, or the library's."""
    try:
        text = text or library.text_of(name)
        scenario = read(text, f"{name}.yaml")
        chosen = scenario.scale if scale is None else scale
        if chosen != "auto" and not SCALE_MIN <= chosen <= SCALE_MAX:
            raise ExperimentRefused(f"The scale {chosen:g} is outside {SCALE_MIN:g} to {SCALE_MAX:g}.")
        plan = make_plan(scenario, 0, Scaling(1.0 if chosen == "auto" else chosen), texts_of(scenario))
    except (ScenarioError, ValueError) as error:
        raise ExperimentRefused(str(error)) from error
    _check_numbers(repetitions, 0.0)
    if not 1 <= shards <= MOST_SHARDS:
        raise ExperimentRefused(f"The number of shards must lie between 1 and {MOST_SHARDS}, not {shards}.")
    _refuse_second(server, when)
    _refuse(preflight.of_load(server, scenario, plan, {"A": policy_a, "B": policy_b}, scale_known=chosen != "auto"))
    return _queue(
        when,
        scenario=scenario.name,
        scenario_text=text,
        server=server,
        policy_a=policy_a,
        policy_b=policy_b,
        repetitions=repetitions,
        scale=1.0 if chosen == "auto" else chosen,
        scale_auto=chosen == "auto",
        shards=shards,
        share=0.0,
        seed=seed,
        created_by=by,
        **_blocks(
            wanted[0] or scenario.blocks.order,
            scenario.blocks.floor if wanted[1] is None else wanted[1],
            repetitions,
            equal_arms=policy_a == policy_b,
        ),
    )


def _blocks(order: str | None, floor: int | None, repetitions: int, *, equal_arms: bool) -> dict[str, Any]:
    """The fields of a run that say how its blocks come."""
    if order is not None and order not in ORDERS:
        raise ExperimentRefused(f"The order of the blocks must be {' or '.join(ORDERS)}, not {order!r}.")
    if floor is None:
        floor = default_floor(repetitions, equal_arms=equal_arms)
    if not 0 <= floor <= MOST_FLOOR:
        raise ExperimentRefused(f"The number of floor pairs must lie between 0 and {MOST_FLOOR}, not {floor}.")
    return {"order": order or ABBA, "floor": floor}


def _queue(when: When, *, repetitions: int, seed: int | None, **fields: Any) -> Run:
    drawn = secrets.randbelow(MOST_SEED) if seed is None else seed
    fields |= {"repetitions": repetitions, "seed": drawn, "progress_total": 2 * (repetitions + fields["floor"]) + 1}
    before = queueing.in_the_way(fields["server"]) if when.wait and not when.later else None
    if when.later or before is not None:
        return _leave_waiting(when, before, fields)
    try:
        with transaction.atomic():
            run = Run.objects.create(progress_text=queueing.FOR_A_WORKER, enqueued_at=timezone.now(), **fields)
    except IntegrityError:  # somebody started another one just now
        if when.wait:
            return _leave_waiting(when, queueing.in_the_way(fields["server"]), fields)
        _refuse_second(fields["server"], when)
        raise
    try:
        send(run)
    except (BrokerDown, OperationalError):
        run.delete()
        raise ExperimentRefused("The message broker cannot be reached, so no worker would hear of the run.") from None
    runlog.note(run.pk, f"Sent to the workers{_by(run)}.", source="console")
    _record(run)
    return run


def _leave_waiting(when: When, before: Run | None, fields: dict[str, Any]) -> Run:
    text = queueing.FOR_ITS_TIME if before is None else f"Waiting for the end of run {before.pk}"
    run = Run.objects.create(state=RunState.WAITING, not_before=when.not_before, progress_text=text, **fields)
    told = text if when.not_before is None else f"{text}, not before {when.not_before:%Y-%m-%d %H:%M:%S %Z}"
    runlog.note(run.pk, f"{told}{_by(run)}.", source="console")
    _record(run)
    return run


def _record(run: Run) -> None:
    after = {"arm_a": run.policy_a, "arm_b": run.policy_b, "pairs": run.repetitions}
    audit.record("run.started", run.scenario, server=run.server, actor=run.created_by, after=after, ref=f"run {run.pk}")


def _by(run: Run) -> str:
    return f" by {run.created_by.get_username()}" if run.created_by is not None else ""


def request_stop(run: Run, by: User | None) -> None:
    """A waiting or queued run stops at once, a running one within a second; one that is over stays as it is."""
    reason = f"stopped by {by.get_username()}" if by is not None else "stopped"
    not_begun = Run.objects.filter(pk=run.pk, state__in=(RunState.WAITING, RunState.QUEUED))
    changed = not_begun.update(
        state=RunState.STOPPED, stop_requested=True, stop_reason=reason, finished_at=timezone.now(), progress_text=""
    ) or Run.objects.filter(pk=run.pk, state=RunState.RUNNING).update(
        state=RunState.STOPPING, stop_requested=True, stop_reason=reason
    )
    if changed:
        audit.record("run.stopped", run.scenario, server=run.server, actor=by, ref=f"run {run.pk}")
        runlog.note(run.pk, f"{reason[:1].upper()}{reason[1:]}.", "warning", "console")
    run.refresh_from_db()


def _check_numbers(repetitions: int, share: float) -> None:
    if not 1 <= repetitions <= MOST_REPETITIONS:
        raise ExperimentRefused(f"The number of pairs must lie between 1 and {MOST_REPETITIONS}, not {repetitions}.")
    if not 0 <= share < 1:
        raise ExperimentRefused(f"The share must be at least 0 and below 1, not {share:g}.")


def _refuse(told: list[Lack]) -> None:
    """Raises ExperimentRefused with the first that is fatal."""
    for lack in told:
        if lack.fatal:
            raise ExperimentRefused(lack.text)


def _refuse_second(server: Server, when: When) -> None:
    if when.wait or when.later:
        return
    other = queueing.in_the_way(server)
    if other is not None:
        state = "waits for it" if other.state == RunState.WAITING else "under way"
        raise ExperimentRefused(
            f"{server.name} already has an experiment {state} (run {other.pk}); stop it, wait for its end, or queue behind it."
        )
