"""The log: plain lines, or one JSON object a line. Neither ever holds text of a prompt or an answer."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import orjson

from engine.options_server import ServerOptions

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# What a line may carry beside its message, given as `extra`; anything else that a library hangs on a record stays out.
FIELDS = ("iteration", "cohort", "policy_version", "task", "slot", "tasks", "slots")


class JsonLines(logging.Formatter):
    """`time` is UTC with milliseconds, `exception` a traceback; fields that a line has no value for are left out."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, record.__dict__[name]) for name in FIELDS if name in record.__dict__)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def start_log(options: ServerOptions) -> None:
    """To stderr, and to a file where one is named."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if options.log_file is not None:
        try:
            handlers.append(logging.FileHandler(options.log_file, encoding="utf-8"))
        except OSError as exc:
            print(f"The log cannot be written to {options.log_file}: {exc.strerror}.", file=sys.stderr)
    formatter = JsonLines() if options.log_format == "json" else logging.Formatter(PLAIN)
    for handler in handlers:
        handler.setFormatter(formatter)
    level = max(options.log_level, logging.WARNING)
    logging.basicConfig(level=level, handlers=handlers)
    logging.getLogger("engine").setLevel(options.log_level)  # other libraries' information is not the operator's
