"""The command `slotboard`: what the console can do, from a shell.

Exit codes: 0 done, 1 refused by the console (or a run that did not finish), 2 wrong use, 3 the console cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slotboard_client import experiments, policies, standing, trail
from slotboard_client.base import REFUSED, UNREACHABLE, USAGE, Command, UsageError, say, told_refusal
from slotboard_client.client import Client
from slotboard_client.errors import ClientError, Refused, Unreachable

LISTED = 50
EPILOG = """The token comes from SLOTBOARD_TOKEN, or from a file: --token-file or SLOTBOARD_TOKEN_FILE. Make one in the console,
under Settings, Tokens. Exit codes: 0 done, 1 refused, 2 wrong use, 3 the console cannot be reached."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(arguments)
    args.json = getattr(args, "json", False)
    run: Command = args.command
    try:
        with Client(_url(args), _token(args), timeout_s=getattr(args, "timeout", 60.0)) as client:
            return run(client, args)
    except UsageError as error:
        return _said(str(error), USAGE)
    except Refused as error:
        return _said(told_refusal(error), REFUSED)
    except Unreachable as error:
        return _said(error.text, UNREACHABLE)
    except ClientError as error:
        return _said(error.text, USAGE)


def command() -> None:
    """Of the script: ends the process with the code. A reader that goes away, as `head` does, is no error."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


def _said(text: str, code: int) -> int:
    for line in text.splitlines():
        say(line)
    return code


def _url(args: argparse.Namespace) -> str:
    url = getattr(args, "url", None) or os.environ.get("SLOTBOARD_URL", "")
    if not url:
        raise UsageError("Where is the console? Set SLOTBOARD_URL, or give --url https://ops.example.org/llm.")
    return str(url)


def _token(args: argparse.Namespace) -> str:
    """A flag names a file, never the token: what stands on a command line is seen by everybody on the machine."""
    file = getattr(args, "token_file", None)
    if file is None and (token := os.environ.get("SLOTBOARD_TOKEN", "").strip()):
        return _checked(token)
    file = file or os.environ.get("SLOTBOARD_TOKEN_FILE", "")
    if not file:
        raise UsageError("Set SLOTBOARD_TOKEN, or name a file that holds the token with --token-file.")
    try:
        return _checked((sys.stdin.readline() if file == "-" else Path(file).read_text(encoding="utf-8")).strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {file} cannot be read: {error}.") from None


def _checked(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("This is no token: it has one line of letters, digits and signs, and begins with slotboard_.")
    return token


def make_parser() -> argparse.ArgumentParser:
    shared = _shared()
    parser = argparse.ArgumentParser(
        prog="slotboard", description="What the console can do, from a shell.", epilog=EPILOG, parents=[shared]
    )
    words = parser.add_subparsers(required=True, metavar="command", title="commands")
    _servers(words, shared)
    _policy(words, shared)
    _standing(words, shared)
    _scenarios(words, shared)
    _runs(words, shared)
    _trail(words, shared)
    return parser


def _shared() -> argparse.ArgumentParser:
    """Flags that count wherever they stand; without a default, so that an inner parser does not undo them."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--url", help="the console's address, else SLOTBOARD_URL")
    shared.add_argument("--token-file", metavar="FILE", help='holds the token; "-" reads it from standard input')
    shared.add_argument("--timeout", type=float, metavar="S", help="seconds that an answer may take (60)")
    shared.add_argument("--json", action="store_true", help="print the API's answer")
    return shared


def _word(words: Any, shared: argparse.ArgumentParser, name: str, run: Command, what: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = words.add_parser(
        name, parents=[shared], help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    made.set_defaults(command=run)
    return made


def _limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=LISTED, metavar="N", help=f"show at most so many ({LISTED})")


def _servers(words: Any, shared: argparse.ArgumentParser) -> None:
    _limit(_word(words, shared, "servers", policies.servers, "list the servers"))
    one = _word(words, shared, "server", policies.server, "show a server and its slots")
    one.add_argument("server", help="its name or id")


def _policy(words: Any, shared: argparse.ArgumentParser) -> None:
    policy = _word(words, shared, "policy", policies.policy, "show the policy of a server, or switch it")
    policy.add_argument("server", help="its name or id")
    inner = policy.add_subparsers(metavar="set | revert | changes")
    switch = _word(inner, shared, "set", policies.policy_set, "switch fields of the policy")
    switch.add_argument("fields", nargs="+", metavar="field=value", help="a word, a number, or off")
    switch.add_argument("--reason", default="", help="why: it goes into the audit")
    switch.add_argument("--ttl", type=float, metavar="S", help="seconds until the server goes back by itself")
    switch.add_argument(
        "--guard",
        action="append",
        default=[],
        metavar="METRIC:OVER:S[:N]",
        help="puts the change back, such as oldest_wait:60:10",
    )
    switch.add_argument("--expected-version", type=int, metavar="N", help="refuse when the policy is at another one")
    switch.add_argument("--understood", action="store_true", help="confirm what can stop requests from being served")
    switch.add_argument("--dry-run", action="store_true", help="tell what it would be, and change nothing")
    revert = _word(inner, shared, "revert", policies.policy_revert, "take the change in force back")
    revert.add_argument("--change", type=int, metavar="ID", help="only if it is this one")
    _limit(_word(inner, shared, "changes", policies.policy_changes, "list what was switched, by whom"))
    _limit(_word(words, shared, "presets", policies.presets, "list policies under names"))


def _standing(words: Any, shared: argparse.ArgumentParser) -> None:
    drift = _word(words, shared, "drift", standing.drift, "list policies that others changed, and settle it")
    drift.add_argument("server", help="its name or id")
    drift.add_argument("--state", default="", help="open, reapplied, left or superseded")
    _limit(drift)
    inner = drift.add_subparsers(metavar="reapply | leave")
    for name, run, what in (
        ("reapply", standing.drift_reapply, "set what was there again"),
        ("leave", standing.drift_leave, "keep the policy as it was found"),
    ):
        _word(inner, shared, name, run, what).add_argument("drift", type=int, help="its id")
    guards = _word(words, shared, "guards", standing.guards, "list guard rails, and take one off")
    guards.add_argument("server", help="its name or id")
    guards.add_argument("--state", default="", help="watching, reverted, failed or ended")
    _limit(guards)
    off = _word(guards.add_subparsers(metavar="off"), shared, "off", standing.guards_off, "take a guard rail off")
    off.add_argument("guard", type=int, help="its id")
    windows = _word(words, shared, "windows", standing.windows, "list policies by the clock, and change them")
    windows.add_argument("server", help="its name or id")
    _limit(windows)
    inner = windows.add_subparsers(metavar="add | on | off | remove")
    _window(_word(inner, shared, "add", standing.windows_add, "keep a new window"))
    for name, run, what in (
        ("on", standing.windows_switch, "switch a window on"),
        ("off", standing.windows_switch, "switch a window off"),
        ("remove", standing.windows_remove, "remove a window"),
    ):
        one = _word(inner, shared, name, run, what)
        one.set_defaults(enabled=name == "on")
        one.add_argument("window", type=int, help="its id")


def _window(add: argparse.ArgumentParser) -> None:
    policy = "a preset's key, or field=value+field=value"
    add.add_argument("--name", required=True)
    add.add_argument("--inside", required=True, metavar="POLICY", help=policy)
    add.add_argument("--outside", metavar="POLICY", help=f"{policy}; without it back to what was before")
    add.add_argument("--days", metavar="mon,tue", help="of every week, with --begins and --ends")
    add.add_argument("--begins", metavar="22:00")
    add.add_argument("--ends", metavar="06:00")
    add.add_argument("--starts-at", metavar="2026-05-01T03:00", help="once, with --ends-at")
    add.add_argument("--ends-at", metavar="2026-05-01T05:00")
    add.add_argument("--zone", metavar="Europe/Berlin", help="without it the console's own")


def _scenarios(words: Any, shared: argparse.ArgumentParser) -> None:
    listed = _word(words, shared, "scenarios", experiments.scenarios, "list the scenarios")
    listed.add_argument("--tag", default="")
    _limit(listed)
    inner = words.add_parser("scenario", help="show or check a scenario").add_subparsers(required=True, metavar="show | check")
    _word(inner, shared, "show", experiments.scenario_show, "print a scenario's text").add_argument("scenario", help="its name")
    _word(inner, shared, "check", experiments.scenario_check, "tell what is wrong with a file").add_argument(
        "file", help='"-" is standard input'
    )


def _runs(words: Any, shared: argparse.ArgumentParser) -> None:
    listed = _word(words, shared, "runs", experiments.runs, "list runs, the newest first")
    for name, what in (("server", "name or id"), ("scenario", "name"), ("by", "who started it"), ("state", "a state, or active")):
        listed.add_argument(f"--{name}", default="", help=what)
    listed.add_argument("--verdicts", action="store_true", help="what each found: takes a while the first time")
    _limit(listed)
    inner = words.add_parser("run", help="start, show, wait for or stop a run").add_subparsers(
        required=True, metavar="start | show | wait | stop | export"
    )
    _start(_word(inner, shared, "start", experiments.run_start, "start a run"))
    waited = _word(inner, shared, "wait", experiments.run_wait, "wait for a run's end, and show what it found")
    waited.add_argument("--limit-s", type=float, metavar="S", help="give up after so many seconds; the run goes on")
    one = (
        _word(inner, shared, "show", experiments.run_show, "show a run and what it found"),
        _word(inner, shared, "export", experiments.run_export, "print a run as the file that a console imports"),
        _word(inner, shared, "stop", experiments.run_stop, "stop a run"),
        _word(words, shared, "samples", experiments.samples, "list a run's samples"),
    )
    for each in (waited, *one):
        each.add_argument("run", type=int)
    for name in ("stream", "arm", "outcome"):
        one[-1].add_argument(f"--{name}", default="")
    one[-1].add_argument("--csv", action="store_true", help="all of them, as a table for other programs")
    _limit(one[-1])


def _start(start: argparse.ArgumentParser) -> None:
    start.add_argument("--server", required=True, help="name or id")
    start.add_argument("--scenario", required=True, help="its name, or a YAML file")
    start.add_argument("--arms", help="two arms, such as A,B (the scenario's own), physical,rotating, or as-is,as-is")
    start.add_argument("--pairs", type=int, default=8)
    start.add_argument("--scale", type=_scale, help="a factor of all sizes, or auto")
    start.add_argument("--share", type=float)
    start.add_argument("--seed", type=int, help="of an earlier run, for the same load again")
    start.add_argument("--shards", type=int)
    start.add_argument("--order")
    start.add_argument("--floor", type=int)
    start.add_argument("--not-before", help="a moment to wait for, such as 2026-05-01T03:00")
    start.add_argument("--queue", action="store_true", help="behind a run that has the server, which refuses otherwise")
    start.add_argument("--wait", action="store_true", help="until it is over, and show what it found")
    start.add_argument("--limit-s", type=float, metavar="S", help="with --wait: give up after so many seconds; the run goes on")


def _scale(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _trail(words: Any, shared: argparse.ArgumentParser) -> None:
    audit = _word(words, shared, "audit", trail.audit, "search the audit trail, the newest row first")
    for name in ("who", "what", "server", "q", "outcome"):
        audit.add_argument(f"--{name}", default="")
    audit.add_argument("--from", dest="since", default="", help="a date, or a date and time")
    audit.add_argument("--to", dest="until", default="")
    _limit(audit)
    alerts = _word(words, shared, "alerts", trail.alerts, "list alerts, acknowledge or silence them")
    alerts.add_argument("--state", choices=("open", "closed", "all"), default="open")
    alerts.add_argument("--server", default="")
    _limit(alerts)
    inner = alerts.add_subparsers(metavar="ack | silence")
    _word(inner, shared, "ack", trail.alerts_ack, "acknowledge an alert").add_argument("alert", type=int)
    silence = _word(inner, shared, "silence", trail.alerts_silence, "tell nobody for a while")
    silence.add_argument("--minutes", type=float, required=True)
    silence.add_argument("--reason", required=True)
    silence.add_argument("--server", default=argparse.SUPPRESS)
