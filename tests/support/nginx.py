"""A real nginx in front of a console, with the configuration that the documentation shows."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import ROOT, free_port

EXAMPLE = ROOT / "docs" / "examples" / "nginx.conf"
PREFIX = "/ops/llm"
WHOLE = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    include {folder}/console.conf;
}}
"""


def find_nginx() -> str:
    found = subprocess.run(["sh", str(ROOT / "tools" / "nginx.sh")], capture_output=True, text=True, check=False)
    if found.returncode:
        if os.environ.get("CI"):
            raise AssertionError(f"nginx is needed for this test: {found.stderr}")
        pytest.skip(f"no nginx is here: {found.stderr.strip()}")
    return found.stdout.strip()


@contextlib.contextmanager
def nginx(folder: Path, console_port: int, port: int | None = None) -> Iterator[str]:
    """The address of the console behind it, without a slash at the end."""
    port = port or free_port()
    text = (
        EXAMPLE.read_text().replace("127.0.0.1:8088", f"127.0.0.1:{port}").replace("127.0.0.1:8000", f"127.0.0.1:{console_port}")
    )
    (folder / "console.conf").write_text(text)
    (folder / "nginx.conf").write_text(WHOLE.format(folder=folder))
    process = subprocess.Popen(
        [find_nginx(), "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=subprocess.PIPE, text=True
    )
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}{PREFIX}"
    finally:
        process.terminate()
        process.communicate(timeout=10)


def _wait(process: subprocess.Popen[str], port: int) -> None:
    for _ in range(100):
        assert process.poll() is None, f"nginx ended: {process.communicate()[1]}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("nginx did not answer within five seconds")
