"""Starts an experiment from a shell: the same checks, worker and pages as the form's."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from scheduler_api.models import Server
from workers.errors import ExperimentRefused
from workers.experiments import start_run


class Command(BaseCommand):
    help = "Queue an experiment and print the number of its run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("scenario")
        parser.add_argument("--server", required=True, help="its name in the registry")
        parser.add_argument("--a", default="{}", help='policy fields of arm A as JSON, such as \'{"prefill_order": "physical"}\'')
        parser.add_argument("--b", default="{}", help="policy fields of arm B as JSON")
        parser.add_argument("--pairs", type=int, default=8)
        parser.add_argument("--scale", type=float, default=1.0)
        parser.add_argument(
            "--share", type=float, default=None, help="when the short request is sent, of the cold one's time alone"
        )
        parser.add_argument("--by", default="", help="the operator's name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = start_run(
                scenario=options["scenario"],
                server=Server.objects.get(name=options["server"]),
                policy_a=_policy("a", options["a"]),
                policy_b=_policy("b", options["b"]),
                repetitions=options["pairs"],
                scale=options["scale"],
                share=options["share"],
                by=User.objects.get(username=options["by"]) if options["by"] else None,
            )
        except Server.DoesNotExist:
            raise CommandError(f"No server is registered under the name {options['server']!r}.") from None
        except User.DoesNotExist:
            raise CommandError(f"There is no operator named {options['by']!r}.") from None
        except ExperimentRefused as refused:
            raise CommandError(refused.text) from None
        self.stdout.write(str(run.pk))


def _policy(arm: str, text: str) -> dict[str, Any]:
    try:
        policy = json.loads(text)
    except ValueError:
        policy = None
    if not isinstance(policy, dict):
        raise CommandError(f"--{arm} must be a JSON object of policy fields, not {text!r}.")
    return policy
