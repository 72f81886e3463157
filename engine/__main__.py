"""`python -m engine`: exit code 0 after a signal, 1 when it cannot serve, 2 for a wrong flag."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Sequence

import uvloop

from engine.http.server import listen, serve
from engine.options import parse_options


def main(argv: Sequence[str]) -> int:
    options = parse_options(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        sock = listen(options.host, options.port)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        print(f"The server cannot listen on {options.host} port {options.port}: {reason}.", file=sys.stderr)
        return 1
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(serve(options, sock))
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread is not threading.main_thread() and thread.is_alive() for thread in threading.enumerate()):
        os._exit(code)  # a batch or a model is still being computed: nothing of it is worth waiting for
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
