"""What all words of the command share: exit codes, lists, files, and refusals in words."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from slotboard_client.client import Client
from slotboard_client.errors import Refused
from slotboard_client.printing import arm, as_json, plain, table
from slotboard_client.shapes import Shape

OK, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3

#: Does what a word says with a client, and returns the exit code.
type Command = Callable[[Client, Namespace], int]


class UsageError(Exception):
    """A wrong use of the command, found before anything is asked; the message is one sentence."""


def out(text: str) -> None:
    print(text)


def say(text: str) -> None:
    """Progress and errors go beside what is printed."""
    print(f"slotboard: {plain(text)}", file=sys.stderr)


def listed[S: Shape](
    args: Namespace, found: Iterator[S], head: tuple[str, ...], row: Callable[[S], Iterable[Any]], none: str
) -> int:
    """At most `--limit` of them; `none` is said where there are none."""
    rows = list(islice(found, args.limit))
    if args.json:
        out(as_json([each.raw for each in rows]))
    else:
        out(table(head, [list(row(each)) for each in rows]) or none)
    return OK


def text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from None


def told_refusal(error: Refused) -> str:
    """Lines for an operator: the sentence, and what is known besides."""
    problem, told = error.problem, [error.text]
    told += [f"Severe: {plain(text)}" for text in problem.get("cautions") or []]
    if error.kind == "version-conflict" and (current := problem.get("current")):
        told.append(f"In force is version {current.get('version')}: {arm(current.get('requested') or {})}.")
    if error.kind == "confirm":
        told.append("Add --understood to switch all the same.")
    return "\n".join(told)
