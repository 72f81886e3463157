"""Reads a run's file back: checked, marked as imported, and without a server of this console."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import models, transaction
from django.utils import timezone

from workers import selectors
from workers.errors import ImportRefused
from workers.experiments import MOST_FLOOR, MOST_REPETITIONS
from workers.exporting.document import FORMAT, FORMAT_VERSION
from workers.exporting.fields import ValueFault, columns
from workers.exporting.fields import read as read_value
from workers.models import ACTIVE, Block, Run, RunState, Sample
from workers.scenarios import ScenarioError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

type Json = dict[str, Any]

MOST_BYTES = 64 << 20
MOST_BLOCKS = 512
MOST_SAMPLES = 500_000
MOST_TIMES = 100_000  # token times of one request
KINDS = 40  # characters of a server's kind
TOP = ("format", "format_version", "run", "server", "noise", "blocks", "result")
UNFINISHED = (*ACTIVE, RunState.WAITING)
BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, ScenarioError)


def import_run(data: bytes, by: User | None) -> Run:
    """A new run with the content of a file that `workers.exporting.document.as_json` wrote. Raises ImportRefused.

    `Run.imported` says where it came from: {"run" (its number there), "server" {"name", "kind"}, "noise", "sha256" (of the file),
    "at" (ISO), "by" (a name, or "")}. It is over, has no server, and nothing acts on it.
    """
    content = _parsed(data)
    run_fields = _fields(Run, {name: value for name, value in content["run"].items() if name != "number"}, "run")
    if run_fields.get("state") in UNFINISHED:
        raise ImportRefused(f"run.state must be that of a run that is over, not {run_fields['state']}.")
    for name, most in (("repetitions", MOST_REPETITIONS), ("floor", MOST_FLOOR)):
        if run_fields.get(name, 0) > most:
            raise ImportRefused(f"run.{name} must be at most {most}, not {run_fields[name]}.")
    run_fields["imported"] = {
        **_origin(content),
        "sha256": hashlib.sha256(data).hexdigest(),
        "at": timezone.now().isoformat(),
        "by": "" if by is None else by.get_username(),
    }
    with transaction.atomic():
        run = Run.objects.create(created_by=by, **run_fields)
        if "created_at" in run_fields:  # which the model sets by itself
            Run.objects.filter(pk=run.pk).update(created_at=run_fields["created_at"])
            run.refresh_from_db()
        _add_blocks(run, content["blocks"])
        _check(run)
    return run


def _parsed(data: bytes) -> Json:
    """Its top level checked. Raises ImportRefused."""
    if len(data) > MOST_BYTES:
        raise ImportRefused(f"The file has {len(data) >> 20} MB; at most {MOST_BYTES >> 20} MB are read.")
    try:
        content = json.loads(data.decode(), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except UnicodeDecodeError:
        raise ImportRefused("The file is not UTF-8 text, so it is not a run exported as JSON.") from None
    except json.JSONDecodeError as error:
        raise ImportRefused(f"The file is not JSON: line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except (RecursionError, ValueError) as error:
        raise ImportRefused(f"The file is not strict JSON: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ImportRefused(f"The file is not an exported run: its format is not {FORMAT!r}.")
    if content.get("format_version") != FORMAT_VERSION:
        told = content.get("format_version")
        raise ImportRefused(f"The file has version {told!r} of the format, and this console reads version {FORMAT_VERSION}.")
    _only(content, TOP, "the file")
    for name, kind in (("run", dict), ("server", dict), ("blocks", list)):
        if not isinstance(content.get(name), kind):
            raise ImportRefused(f"{name} must be {'a list' if kind is list else 'an object'}.")
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def _only(given: Mapping[str, Any], known: Any, where: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise ImportRefused(f"{where} has unknown fields: {', '.join(unknown[:5])}.")


def _origin(content: Json) -> Json:
    number, server, noise = content["run"].get("number"), content["server"], content.get("noise")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 63:
        raise ImportRefused("run.number must be a whole number from 1 on.")
    _only(server, ("name", "kind"), "server")
    if not all(
        isinstance(server.get(name), str) and len(server[name]) <= most for name, most in (("name", 200), ("kind", KINDS))
    ):
        raise ImportRefused("server must have a name and a kind, both text.")
    if noise is not None and not _is_noise(noise):
        raise ImportRefused("noise must be null, or have a difference (a number) and a text.")
    return {"run": number, "server": {"name": server["name"], "kind": server["kind"]}, "noise": noise}


def _is_noise(noise: Any) -> bool:
    if not isinstance(noise, dict) or set(noise) != {"difference", "text"}:
        return False
    difference = noise["difference"]
    return isinstance(noise["text"], str) and isinstance(difference, int | float) and not isinstance(difference, bool)


def _fields(model: type[models.Model], given: Any, where: str) -> Json:
    """Each value as its column takes it; what is not given keeps the column's default. Raises ImportRefused."""
    if not isinstance(given, dict):
        raise ImportRefused(f"{where} must be an object.")
    known = columns(model)
    _only(given, known, where)
    found = {}
    for name, column in known.items():
        if name in given:
            try:
                found[name] = read_value(column, given[name])
            except ValueFault as fault:
                raise ImportRefused(f"{where}.{name} {fault}.") from None
        elif not column.has_default() and not column.null and not column.blank:
            raise ImportRefused(f"{where}.{name} is missing.")
    return found


def _add_blocks(run: Run, given: list[Any]) -> None:
    if len(given) > MOST_BLOCKS:
        raise ImportRefused(f"The file has {len(given):,} blocks; at most {MOST_BLOCKS} are read.")
    count, indices = 0, set()
    for place, each in enumerate(given):
        where = f"blocks[{place}]"
        samples = each.get("samples") if isinstance(each, dict) else None
        if not isinstance(samples, list):
            raise ImportRefused(f"{where}.samples must be a list.")
        count += len(samples)
        if count > MOST_SAMPLES:
            raise ImportRefused(f"The file has more than {MOST_SAMPLES:,} samples, which is as many as are read.")
        fields = _fields(Block, {name: value for name, value in each.items() if name != "samples"}, where)
        if fields["index"] in indices:
            raise ImportRefused(f"{where}.index is that of another block: {fields['index']}.")
        indices.add(fields["index"])
        block = Block.objects.create(run=run, **fields)
        rows = (_sample(run, block, sample, f"{where}.samples[{number}]") for number, sample in enumerate(samples))
        Sample.objects.bulk_create(rows, batch_size=200)


def _sample(run: Run, block: Block, given: Any, where: str) -> Sample:
    fields = _fields(Sample, given, where)
    times = fields.get("chunks_ms") or []
    if len(times) > MOST_TIMES or not all(isinstance(at, int | float) and not isinstance(at, bool) for at in times):
        raise ImportRefused(f"{where}.chunks_ms must be a list of at most {MOST_TIMES:,} numbers.")
    return Sample(run=run, block=block, **fields)


def _check(run: Run) -> None:
    """That a result can be made of it, so that no page meets content that it cannot show."""
    try:
        _check_conditions(run.conditions)
        _check_words(run.warnings)
        selectors.results(run)
        for timeline, warnings in run.blocks.values_list("timeline", "warnings"):
            _check_timeline(timeline)
            _check_words(warnings)
    except BROKEN as error:
        raise ImportRefused(f"The file's values do not make a result: {type(error).__name__}: {error}.") from None


def _check_conditions(conditions: Json) -> None:
    """The parts that pages read, as far as they are there."""
    for name in ("server", "scenario", "fitted", "planned", "tokens", "alone"):
        part = conditions.get(name, {})
        if not isinstance(part, dict):
            raise ValueError(f"conditions.{name} is no object")
    for name in ("fitted", "alone", "tokens"):
        for key, value in conditions.get(name, {}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"conditions.{name}.{key} is no number")
    for name in ("clock_offset_s", "cold_alone_s", "short_alone_s", "warm_s", "batch_s", "expected_block_s", "ttl_s"):
        float(conditions.get(name, 0.0))


def _check_timeline(timeline: Json) -> None:
    for step in timeline.get("iterations", ()):
        _numbers(step, "t", "run_ms")
        for name in ("prompt", "gen"):
            for slot, tokens in step.get(name, ()):
                int(slot), int(tokens)
    for request in timeline.get("requests", ()):
        _numbers(request, "sent_at", "first_visit_at", "first_token_at", "done_at", "slot")
        float(request["sent_at"]), str(request["role"])


def _numbers(part: Json, *names: str) -> None:
    for name in names:
        value = part.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} of a timeline is no number")


def _check_words(texts: list[Any]) -> None:
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a warning is no text")
