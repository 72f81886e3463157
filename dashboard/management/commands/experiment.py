"""Starts an experiment from a shell: the same checks, worker and pages as the form's. With `run`, waits for it and judges it."""

from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from dashboard.run_files import FORMS
from scheduler_api.models import Server
from workers import gating, stored
from workers.analysis.assertions import AssertionFault, Demand, check_names, parse
from workers.analysis.order import ORDERS
from workers.errors import ExperimentRefused
from workers.experiments import request_stop, start_run
from workers.models import Run
from workers.scenarios import Scenario, ScenarioError, library
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario

WRONG = 2  # the exit code of a wrong use and of a run without a result; 1 says that an assertion is not met


class Command(BaseCommand):
    help = (
        "Queue an experiment and print the number of its run. With `run` in front of the scenario: wait for its end, print the "
        "verdict, and exit with 0 when all assertions are met, 1 when one is not, 2 when there is no result."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="[run] scenario", help="a name of the library, or a YAML file")
        parser.add_argument("--list", action="store_true", help="name the scenarios of the library and end")
        parser.add_argument("--server", default="", help="its name in the registry")
        parser.add_argument("--a", default=None, help='policy fields of arm A as JSON, such as \'{"prefill_order": "physical"}\'')
        parser.add_argument(
            "--b", default=None, help="policy fields of arm B as JSON; without both, those that the scenario suggests"
        )
        parser.add_argument(
            "--arms", default=None, help="both arms in few words: A,B (the scenario's own), physical,rotating, or as-is,as-is"
        )
        parser.add_argument("--pairs", type=int, default=8)
        parser.add_argument("--order", choices=ORDERS, default=None, help="of the blocks; without it, the scenario's, else abba")
        parser.add_argument("--floor", type=int, default=None, help="pairs with arm A on both sides that go first")
        parser.add_argument(
            "--scale", type=_scale, default=None, help='a factor of all sizes, or "auto"; without it, the scenario\'s own'
        )
        parser.add_argument(
            "--share", type=float, default=None, help="when the short request is sent, of the cold one's time alone"
        )
        parser.add_argument("--seed", type=int, default=None, help="of an earlier run, for the same load again")
        parser.add_argument("--shards", type=int, default=1, help="worker slots over which a load of streams is spread")
        parser.add_argument("--wait", action="store_true", help="behind a run that has the server, which is refused otherwise")
        parser.add_argument(
            "--not-before",
            type=_moment,
            default=None,
            help="a moment to wait for, such as 2026-05-01T03:00; of the console's time zone",
        )
        parser.add_argument("--by", default="", help="the operator's name")
        parser.add_argument(
            "--assert",
            dest="demands",
            action="append",
            default=[],
            metavar="ASSERTION",
            help='such as "victim.ttft.p95 diff<=0.2s"',
        )
        parser.add_argument("--timeout", type=float, default=None, help="seconds after which the run is stopped")
        parser.add_argument(
            "--export", type=Path, action="append", default=[], metavar="FILE", help="write the run into FILE.json, .csv or .html"
        )
        parser.add_argument("--json", action="store_true", help="print the result as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self.stdout.write("\n".join(library.names()))
            return
        words: list[str] = options["words"]
        judging = words[:1] == ["run"]
        wanted = words[1:] if judging else words
        if len(wanted) != 1:
            raise CommandError(f"Name one scenario, not {len(wanted)}; --list names those of the library.", returncode=WRONG)
        if not judging and (options["demands"] or options["json"] or options["export"] or options["timeout"] is not None):
            raise CommandError(
                "--assert, --json, --export and --timeout need the form: experiment run <scenario>.", returncode=WRONG
            )
        for file in options["export"]:
            _check_file(file)
        run, demands = self._start(wanted[0], options, judging=judging)
        if judging:
            self._judge(run, demands, options)
        else:
            self.stdout.write(str(run.pk))

    def _start(self, wanted: str, options: dict[str, Any], *, judging: bool) -> tuple[Run, list[Demand]]:
        """Everything that can be wrong with the words is told before anything is sent."""
        returncode = WRONG if judging else 1
        try:
            name, text = _scenario(wanted)
            scenario = read(text, f"{name}.yaml") if text else library.find(name)
            demands = [parse(demand) for demand in options["demands"]]
            check_names(demands, gating.whos(scenario))
            policy_a, policy_b = _arms(scenario, options, judging=judging)
            return start_run(
                scenario=name,
                text=text,
                server=Server.objects.get(name=options["server"]),
                policy_a=policy_a,
                policy_b=policy_b,
                repetitions=options["pairs"],
                scale=options["scale"],
                share=options["share"],
                seed=options["seed"],
                shards=options["shards"],
                wait=options["wait"],
                not_before=options["not_before"],
                order=options["order"],
                floor=options["floor"],
                by=User.objects.get(username=options["by"]) if options["by"] else None,
            ), demands
        except Server.DoesNotExist:
            text = f"No server is registered under the name {options['server']!r}."
        except User.DoesNotExist:
            text = f"There is no operator named {options['by']!r}."
        except ExperimentRefused as refused:
            text = refused.text
        except (ScenarioError, AssertionFault, gating.ArmFault) as error:
            text = str(error)
        raise CommandError(text, returncode=returncode)

    def _judge(self, run: Run, demands: Sequence[Demand], options: dict[str, Any]) -> None:
        """Ends the process with the code. The first signal stops the run, the second one ends the process at once."""
        waiting = gating.Waiting(run, self.stderr.write, options["timeout"], lambda late: request_stop(late, None))

        def stop(number: int, _: object) -> None:
            signal.signal(number, before[signal.Signals(number)])
            waiting.interrupt()

        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, stop)
        try:
            self.stderr.write(f"Run {run.pk} on {run.server.name}")
            found = gating.judged(run, demands, waiting.to_the_end())
        except AssertionFault as fault:
            raise CommandError(str(fault), returncode=WRONG) from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for file in options["export"]:
            _export(run, file)
        self._print(found, as_json=options["json"])
        if found.failure:
            raise CommandError(found.failure, returncode=WRONG)
        if found.code:
            sys.exit(found.code)

    def _print(self, found: gating.Judged, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(found.as_json(), indent=2, allow_nan=False))
            return
        result = found.results
        noise = [result["noise"]["text"]] if result.get("noise") else []
        told = [result["verdict"], *noise, *(f"Warning: {text}" for text in result["warnings"])]
        self.stdout.write("\n".join([*told, *(answer.said for answer in found.answers)]))


def _check_file(file: Path) -> None:
    if file.suffix.removeprefix(".") not in FORMS:
        raise CommandError(f"--export {file}: the name must end with .{', .'.join(FORMS)}.", returncode=WRONG)
    if not file.parent.is_dir():
        raise CommandError(f"--export {file}: there is no folder {file.parent}.", returncode=WRONG)


def _export(run: Run, file: Path) -> None:
    if run.active:
        return
    content = FORMS[file.suffix.removeprefix(".")][1](run)
    try:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise CommandError(f"--export {file}: {error.strerror}.", returncode=WRONG) from None


def _scale(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _scenario(wanted: str) -> tuple[str, str]:
    """Name and text of a file or of an operator's own; a name of the library has no text. Raises ScenarioError."""
    path = Path(wanted)
    if path.suffix not in (".yaml", ".yml"):
        return wanted, "" if wanted in library.names() else stored.entry(wanted).text
    try:
        return path.stem, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"The file {wanted} cannot be read: {error}.") from None


def _arms(scenario: Scenario | LoadScenario, options: dict[str, Any], *, judging: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those given; with neither, the scenario's own. Raises ArmFault."""
    given = [None if options[arm] is None else _policy(arm, options[arm]) for arm in ("a", "b")]
    if options["arms"] is not None:
        if given != [None, None]:
            raise gating.ArmFault("Give the arms either with --arms or with --a and --b.")
        return gating.arms_of(options["arms"], scenario)
    if given == [None, None] and (judging or isinstance(scenario, LoadScenario)):
        return gating.own_arms(scenario)
    return given[0] or {}, given[1] or {}


def _policy(arm: str, text: str) -> dict[str, Any]:
    try:
        policy = json.loads(text)
    except ValueError:
        policy = None
    if not isinstance(policy, dict):
        raise gating.ArmFault(f"--{arm} must be a JSON object of policy fields, not {text!r}.")
    return policy
