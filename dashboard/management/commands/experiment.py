"""Starts an experiment from a shell: the same checks, worker and pages as the form's."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from scheduler_api.models import Server
from workers import stored
from workers.errors import ExperimentRefused
from workers.experiments import start_run
from workers.scenarios import ScenarioError, library
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario


class Command(BaseCommand):
    help = "Queue an experiment and print the number of its run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("scenario", nargs="?", default="", help="a name of the library, or a YAML file")
        parser.add_argument("--list", action="store_true", help="name the scenarios of the library and end")
        parser.add_argument("--server", default="", help="its name in the registry")
        parser.add_argument("--a", default=None, help='policy fields of arm A as JSON, such as \'{"prefill_order": "physical"}\'')
        parser.add_argument(
            "--b", default=None, help="policy fields of arm B as JSON; without both, those that the scenario suggests"
        )
        parser.add_argument("--pairs", type=int, default=8)
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

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self.stdout.write("\n".join(library.names()))
            return
        try:
            name, text = _scenario(options["scenario"])
            policy_a, policy_b = _arms(name, text, options)
            run = start_run(
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
                by=User.objects.get(username=options["by"]) if options["by"] else None,
            )
        except Server.DoesNotExist:
            raise CommandError(f"No server is registered under the name {options['server']!r}.") from None
        except User.DoesNotExist:
            raise CommandError(f"There is no operator named {options['by']!r}.") from None
        except ScenarioError as error:
            raise CommandError(str(error)) from None
        except ExperimentRefused as refused:
            raise CommandError(refused.text) from None
        self.stdout.write(str(run.pk))


def _scale(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _scenario(wanted: str) -> tuple[str, str]:
    """Name and text of a file or of an operator's own; a name of the library has no text."""
    path = Path(wanted)
    if path.suffix not in (".yaml", ".yml"):
        return wanted, "" if wanted in library.names() else stored.entry(wanted).text
    try:
        return path.stem, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The file {wanted} cannot be read: {error}.") from None


def _arms(name: str, text: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those given; with neither, the scenario's own. Raises ScenarioError."""
    given = [None if options[arm] is None else _policy(arm, options[arm]) for arm in ("a", "b")]
    if given == [None, None]:
        scenario = read(text, f"{name}.yaml") if text else library.find(name)
        if isinstance(scenario, LoadScenario):
            return scenario.arms.a, scenario.arms.b
    return given[0] or {}, given[1] or {}


def _policy(arm: str, text: str) -> dict[str, Any]:
    try:
        policy = json.loads(text)
    except ValueError:
        policy = None
    if not isinstance(policy, dict):
        raise CommandError(f"--{arm} must be a JSON object of policy fields, not {text!r}.")
    return policy
