"""Environment variables, each read through a helper that names the variable in its error."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "") or default


def flag(name: str, default: bool) -> bool:
    value = os.environ.get(name, "").lower()
    if value in ("", None):
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false; use 1 or 0.")


def one_of(name: str, choices: tuple[str, ...]) -> str:
    """The first choice is the default."""
    value = os.environ.get(name, "") or choices[0]
    if value not in choices:
        offered = ", ".join(choice for choice in choices if choice)
        raise ImproperlyConfigured(f"{name}={value!r} is none of: {offered}.")
    return value


def number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={value!r} is not a whole number.") from None


def words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def kept_secret(name: str, file: Path) -> str:
    """The variable, where one is named, else the content of `file`.

    The file is made once, with a fresh secret that only its owner can read.
    """
    if value := os.environ.get(name, ""):
        return value
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
        with os.fdopen(descriptor, "w") as handle:
            handle.write(secrets.token_urlsafe(48))
        # A link appears whole or not at all: another process never reads half a secret.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, file)
        os.unlink(fresh)
    return file.read_text().strip()
