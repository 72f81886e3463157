"""Reading flags with their environment variables: what both have in common, and names for what is wrong."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import NoReturn

_TRUE = {"1", "on", "true", "yes", "enabled"}
_FALSE = {"0", "off", "false", "no", "disabled"}


class OneSentenceParser(argparse.ArgumentParser):
    """Says what is wrong and nothing else: two hundred flags before the cause would hide it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See --help for the flags.\n")


class Env:
    """Defaults from the environment, kept with the name they came from so that a bad value can be named."""

    def __init__(self, parser: argparse.ArgumentParser, values: Mapping[str, str]) -> None:
        self._parser = parser
        self._values = values
        self.understood: set[str] = set()

    def _get(self, name: str) -> str | None:
        self.understood.add(name)
        return self._values.get(name)

    def text(self, name: str, default: str) -> str:
        return self._get(name) or default

    def number(self, flag: str, name: str, default: int, convert: Callable[[str], int]) -> int:
        """The flag's own check holds for the environment too."""
        raw = self._get(name)
        if not raw:
            return default
        try:
            return convert(raw)
        except argparse.ArgumentTypeError as exc:
            self._parser.error(f"argument {flag}: {exc} (from environment variable {name})")

    def real(self, flag: str, name: str, default: float, convert: Callable[[str], float]) -> float:
        raw = self._get(name) if name else ""
        if not raw:
            return default
        try:
            return convert(raw)
        except argparse.ArgumentTypeError as exc:
            self._parser.error(f"argument {flag}: {exc} (from environment variable {name})")

    def switch(self, name: str) -> bool | None:
        """The flag's value, None when unset. `LLAMA_ARG_NO_X` set to anything negates `LLAMA_ARG_X`, as in llama-server."""
        negated = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
        if negated != name and self._get(negated) is not None:
            return False
        raw = self._get(name)
        if not raw:
            return None
        if raw.lower() in _TRUE:
            return True
        if raw.lower() in _FALSE:
            return False
        self._parser.error(f"environment variable {name} must be on or off, not {raw!r}")


def whole(low: int, high: int, *, also: tuple[int, ...] = ()) -> Callable[[str], int]:
    def convert(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{raw!r} is not a whole number") from None
        if value not in also and not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return convert


class WholeNumbers:
    """Adds flags that are whole numbers, with the default from the environment where it has one."""

    def __init__(self, group: argparse._ArgumentGroup, env: Env) -> None:
        self._group, self._env = group, env

    def add(
        self, *names: str, env: str, default: int, low: int, high: int = 2**31 - 1, also: tuple[int, ...] = (), text: str
    ) -> None:
        convert = whole(low, high, also=also)
        flag = next(name for name in names if name.startswith("--"))
        default = self._env.number(flag, env, default, convert)
        self._group.add_argument(*names, type=convert, default=default, metavar="N", help=text)


def number(low: float, high: float) -> Callable[[str], float]:
    def convert(raw: str) -> float:
        try:
            value = float(raw)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{raw!r} is not a number") from None
        if not math.isfinite(value) or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{raw} is not between {low:g} and {high:g}")
        return value

    return convert
