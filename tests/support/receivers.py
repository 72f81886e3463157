"""Receivers of alerts on loopback: a webhook that keeps what it was sent, and a mail server of a few commands."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Got:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Webhook:
    """Answers with the statuses given, the last one again and again; 0 takes the request and closes without an answer."""

    statuses: list[int] = field(default_factory=lambda: [200])
    location: str = ""
    got: list[Got] = field(default_factory=list)
    url: str = ""

    def status(self) -> int:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@contextmanager
def webhook(*statuses: int, location: str = "", tls: ssl.SSLContext | None = None) -> Iterator[Webhook]:
    kept = Webhook(list(statuses) or [200], location)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.got.append(Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status = kept.status()
            if status == 0:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            if kept.location:
                self.send_header("Location", kept.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    with _served(server):
        yield kept


@dataclass
class MailServer:
    """`refuse` answers RCPT with that code; `silent` breaks off after the text of the message."""

    refuse: int = 0
    silent: bool = False
    got: list[str] = field(default_factory=list)
    port: int = 0


@contextmanager
def mail_server(*, refuse: int = 0, silent: bool = False) -> Iterator[MailServer]:
    kept = MailServer(refuse, silent)

    class Handler(socketserver.StreamRequestHandler):
        def answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.answer("220 stub")
            for line in self.rfile:
                command = line.decode().split(":")[0].split()[0].upper()
                if command == "DATA":
                    self.answer("354 go on")
                    kept.got.append("".join(iter(lambda: self.rfile.readline().decode(), ".\r\n")))
                    if kept.silent:
                        return
                self.answer(
                    f"{kept.refuse} no" if command == "RCPT" and kept.refuse else "221 bye" if command == "QUIT" else "250 ok"
                )
                if command == "QUIT":
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    kept.port = int(server.server_address[1])
    with _served(server):
        yield kept


@contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
