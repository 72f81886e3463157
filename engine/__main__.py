"""`slotboard-engine`, or `python -m engine`: exit code 0 after a signal, 1 when it cannot serve, 2 for a wrong flag."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence

import uvloop

from engine.backends.base import Backend
from engine.http.server import listen, load_backend, serve
from engine.log import start_log
from engine.options import Options, parse_options


def main(argv: Sequence[str], load: Callable[[Options], Backend] = load_backend) -> int:
    """The exit code. `load` makes the backend, in a thread aside."""
    options = parse_options(argv)
    start_log(options.server)
    for sentence in options.no_effect:
        if options.server.log_format == "json":  # whoever collects lines gets nothing but JSON on stderr
            logging.getLogger("engine").warning(sentence)
        else:
            print(sentence, file=sys.stderr)
    try:
        sock = listen(options.host, options.port, reuse_port=options.server.reuse_port)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        print(f"The server cannot listen on {options.host} port {options.port}: {reason}.", file=sys.stderr)
        return 1
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(serve(options, sock, load))
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread is not threading.main_thread() and thread.is_alive() for thread in threading.enumerate()):
        os._exit(code)  # a batch or a model is still being computed: nothing of it is worth waiting for
    return code


def command() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    command()
