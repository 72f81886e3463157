"""Runs of an experiment, their blocks and samples.

Times named _at are aware datetimes on runs and blocks, Unix seconds on samples and inside timelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from scheduler_api.models import Server


class RunState(models.TextChoices):
    """waiting -> queued -> running -> finished | failed; running -> stopping -> stopped; waiting, queued -> stopped; no
    heartbeat, of the run's worker or of a shard's -> lost.
    """

    WAITING = "waiting"  # for its time, or for the run before it on its server
    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"


ACTIVE = (RunState.QUEUED, RunState.RUNNING, RunState.STOPPING)  # its server is its own: one at a time
HELD = (RunState.RUNNING, RunState.STOPPING)  # a worker has it


class Run(models.Model):
    scenario = models.CharField(max_length=80)
    # None in the database for imported runs alone, which nothing conducts; the type says what all others have.
    server: models.ForeignKey[Any, Server] = models.ForeignKey(  # type: ignore[misc]
        "scheduler_api.Server", null=True, on_delete=models.PROTECT, related_name="runs"
    )
    imported = models.JSONField(null=True)  # where it came from, see workers.exporting.importing; None: a run of this console
    policy_a = models.JSONField(default=dict)  # the fields to set, nothing else
    policy_b = models.JSONField(default=dict)
    repetitions = models.PositiveIntegerField()  # pairs of blocks
    order = models.CharField(max_length=8, default="abba")  # of the blocks within their pairs, see workers.analysis.order
    floor = models.PositiveSmallIntegerField(default=0)  # pairs of blocks before them with arm A on both sides
    scale = models.FloatField(default=1.0)
    scale_auto = models.BooleanField(default=False)  # `scale` is then what the calibration chose
    scenario_text = models.TextField(blank=True)  # the YAML of a scenario made of streams, as it was when the run was started
    shards = models.PositiveSmallIntegerField(default=1)  # worker slots over which a load is spread
    share = models.FloatField(default=0.1)  # of the cold request's time alone, after which the short one is sent
    seed = models.PositiveBigIntegerField()

    state = models.CharField(max_length=10, choices=RunState, default=RunState.QUEUED)
    progress_done = models.PositiveIntegerField(default=0)  # blocks
    progress_total = models.PositiveIntegerField(default=0)
    progress_text = models.CharField(max_length=300, blank=True)
    live = models.JSONField(null=True)  # the load that is being sent, see workers.load.progress; None before the first
    stop_requested = models.BooleanField(default=False)
    stop_reason = models.CharField(max_length=300, blank=True)
    error = models.TextField(blank=True)
    warnings = models.JSONField(default=list)
    conditions = models.JSONField(default=dict)

    policy_before = models.JSONField(null=True)  # the policy object as found
    policy_version = models.PositiveIntegerField(null=True)  # of the last switch that this run made
    policy_restored = models.BooleanField(null=True)  # None: not changed, or not yet over

    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    not_before = models.DateTimeField(null=True)  # scheduled: not sent to a worker before this moment
    enqueued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    celery_id = models.CharField(max_length=80, blank=True)
    worker = models.CharField(max_length=200, blank=True)
    lease = models.CharField(max_length=40, blank=True)  # drawn by the worker that holds the run

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=["server"], condition=Q(state__in=["queued", "running", "stopping"]), name="one_active_run_per_server"
            ),
        )

    def __str__(self) -> str:
        return f"run {self.pk}"

    @property
    def active(self) -> bool:
        """Not over: it waits, or has its server."""
        return self.state in ACTIVE or self.state == RunState.WAITING


class Block(models.Model):
    """A stretch of a run under one policy. `pair` counts from 1; the calibration block has pair 0 and no arm, those of the A/A
    floor pair 0 and arm A.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="blocks")
    index = models.PositiveIntegerField()
    pair = models.PositiveIntegerField(default=0)
    arm = models.CharField(max_length=1, blank=True)
    floor = models.PositiveSmallIntegerField(default=0)  # the number of its pair in the floor, from 1; 0: not of the floor
    policy_version = models.PositiveIntegerField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    timeline = models.JSONField(default=dict)
    tally = models.JSONField(default=dict)  # of a large load, whose requests are not all kept: see workers.load.tally
    search = models.JSONField(null=True)  # what the search for a rate found, see workers.searching
    interrupted = models.BooleanField(default=False)  # the server restarted within it: kept, and left out of what is compared
    warnings = models.JSONField(default=list)

    class Meta:
        ordering = ("run", "index")
        constraints = (models.UniqueConstraint(fields=["run", "index"], name="one_block_per_index"),)

    def __str__(self) -> str:
        return f"block {self.index} of run {self.run_id}"


class Ended(models.Model):
    """A request of a spread load that has ended and for which requests of other shards wait, by its number; `stage` of a search's
    try, else 0.
    """

    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="ended")
    stage = models.IntegerField()
    request = models.IntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["block", "stage", "request"], name="one_end_per_request"),)

    def __str__(self) -> str:
        return f"request {self.request} of {self.block}"


class LogLine(models.Model):
    """What a run did, when: written by its worker, its shards, the dispatcher and the reaper."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="log_lines")
    at = models.DateTimeField()
    level = models.CharField(max_length=8, default="info")  # info | warning | error
    source = models.CharField(max_length=40)  # worker | shard 2 | console | reaper
    text = models.CharField(max_length=500)

    class Meta:
        ordering = ("run", "id")

    def __str__(self) -> str:
        return self.text


class Shard(models.Model):
    """A worker slot that sends a part of a run's load beside the run's own worker, which is shard 1.

    The run's worker writes orders, the shard's worker all else; workers.sharding says how they go.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveSmallIntegerField()  # from 2
    run_lease = models.CharField(max_length=40)  # of the run when it called for the shard
    lease = models.CharField(max_length=40, blank=True)  # drawn by the worker that took it; empty: not taken yet
    worker = models.CharField(max_length=200, blank=True)
    heartbeat_at = models.DateTimeField(null=True)
    clock_offset_s = models.FloatField(null=True)  # the reference clock minus the worker's
    clock_error_s = models.FloatField(null=True)  # at most so far off
    order = models.JSONField(default=dict)  # what to send next
    order_number = models.PositiveIntegerField(default=0)
    start_at = models.FloatField(null=True)  # of this order, on the reference clock; None: not yet given
    ready_number = models.PositiveIntegerField(default=0)  # the order that it has planned and encoded
    done_number = models.PositiveIntegerField(default=0)  # the order that it has sent to the end
    report = models.JSONField(default=dict)  # of that order
    live = models.JSONField(null=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ("run", "number")
        constraints = (models.UniqueConstraint(fields=["run", "number"], name="one_shard_per_number"),)

    def __str__(self) -> str:
        return f"shard {self.number} of run {self.run_id}"


class Sample(models.Model):
    """One request as its client saw it; durations in seconds, None where the stage was not reached."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples")
    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="samples")
    pair = models.PositiveIntegerField(default=0)
    arm = models.CharField(max_length=1, blank=True)
    role = models.CharField(max_length=40)  # cold | short | warm, or the name of the stream
    slot = models.PositiveIntegerField(null=True)  # None: the server chose
    sent_at = models.FloatField()
    first_token_at = models.FloatField(null=True)
    done_at = models.FloatField(null=True)
    wall_s = models.FloatField(null=True)
    wait_s = models.FloatField(null=True)
    prompt_s = models.FloatField(null=True)
    ttft_s = models.FloatField(null=True)
    hold_s = models.FloatField(null=True)
    generation_s = models.FloatField(null=True)
    offset_s = models.FloatField(default=0.0)  # planned delay after the block's cold request
    n_prompt = models.PositiveIntegerField(null=True)  # whole prompt, cached tokens included
    n_cached = models.PositiveIntegerField(null=True)
    n_generated = models.PositiveIntegerField(null=True)
    tokens_from = models.CharField(
        max_length=10, blank=True
    )  # usage | timings | server | counted: who says how many were generated
    scheduled_at = models.FloatField(null=True)  # None: it was due after another one's end
    headers_at = models.FloatField(null=True)
    first_byte_at = models.FloatField(null=True)
    first_content_at = models.FloatField(null=True)
    last_token_at = models.FloatField(null=True)
    chunks_ms = models.JSONField(default=list)  # of each event with a token, counted from `sent_at`
    outcome = models.CharField(max_length=10, blank=True)  # see workers.load.reading.Outcome; empty in warm-behind-cold
    client = models.CharField(max_length=40, blank=True)
    place = models.PositiveIntegerField(null=True)  # within its stream
    stage = models.PositiveIntegerField(default=0)  # of a closed loop or of a rate in stages
    counted = models.BooleanField(default=True)  # False: within the warm-up or cool-down that the scenario declares
    ok = models.BooleanField(default=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ("run", "block", "sent_at")

    def __str__(self) -> str:
        return f"{self.role} request of {self.block}"


class StoredScenario(models.Model):
    """An operator's own scenario. Its text says everything; `title` repeats it for lists.

    A run copies the text when it is started, so editing or deleting one changes no run.
    """

    name = models.CharField(max_length=40, unique=True)  # none of the library
    text = models.TextField()
    title = models.CharField(max_length=200)
    copied_from = models.CharField(max_length=40, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
