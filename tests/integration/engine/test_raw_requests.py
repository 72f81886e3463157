"""Bytes that no client library would send, on a real connection: refused or answered, and the server serves on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.fuzz import HOSTILE, NOT_JSON

pytestmark = pytest.mark.model

GOOD = b'{"prompt":"a","n_predict":1}'


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with running_engine("-np", "2", "-c", "1024", "--no-kv-unified", "--timeout", "2", "-n", "2") as engine:
        yield engine


@pytest.fixture(autouse=True)
def serves_on(engine: EngineProcess) -> Iterator[None]:
    yield
    assert engine.complete(prompt="a", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
    assert "Traceback" not in engine.output()


def send(engine: EngineProcess, data: bytes, *, end: bool = True) -> bytes:
    """All that comes back until the server closes the connection, or is silent for 5 seconds. `end`: no more will be sent, which
    the server takes for a client that left."""
    parts = urlsplit(engine.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as sock:
        answer = b""
        try:
            sock.sendall(data)
            if end:
                sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionError):
            pass
    return answer


def request(path: bytes, body: bytes, *headers: bytes, method: bytes = b"POST") -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize(
    "header",
    [
        b"X-Big: " + b"x" * 30_000,
        b"X-Api-Key: \xff\xfe\x80",
        b"Authorization: Bearer " + b"k" * 9000,
        b"Content-Type: \xff",
        b"Content-Type: text/html; charset=utf-16",
        b"Accept-Encoding: \x01",
        b"Expect: 100-continue",
        b"Origin: \xc3\x28",
        b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x",
        b"\r\n".join(b"X-%d: y" % n for n in range(200)),
    ],
    ids=lambda header: repr(header[:20]),
)
def test_absurd_headers(engine: EngineProcess, header: bytes) -> None:
    answer = send(engine, request(b"/completion", GOOD, header), end=False)
    assert status(answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")) in (200, 400, 431)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # a TLS client
        b"GET /health\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n" + GOOD,
        b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n" + GOOD,
        b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n" + GOOD,
        b"POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\na",
        b"POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"\x00" * 5000,
        b"GET " + b"/a" * 50_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%00%ff%2e%2e/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET //health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
    ids=lambda data: repr(data[:70]),
)
def test_no_request_at_all(engine: EngineProcess, data: bytes) -> None:
    answer = send(engine, data)
    assert status(answer) != 500
    assert b"root:" not in answer


def test_a_body_too_large_is_refused_before_it_is_sent(engine: EngineProcess) -> None:
    head = b"POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (65 << 20)
    answer = send(engine, head, end=False)
    assert status(answer) == 413
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert (error["code"], error["type"]) == (413, "invalid_request_error")


def test_a_body_that_stops_coming_is_given_up(engine: EngineProcess) -> None:
    head = b"POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 500\r\n\r\n" + GOOD
    assert status(send(engine, head, end=False)) == 408
    assert status(send(engine, head)) == 0  # the client went: nobody is left to answer


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions", "/tokenize"])
def test_what_the_real_backend_gets_to_see(engine: EngineProcess, path: str) -> None:
    """Hostile values in the fields that reach llama.cpp: texts, tokens, grammars, schemas and sampling."""
    fields = "prompt content messages grammar json_schema response_format logit_bias stop seed n_probs dry_sequence_breakers "
    fields += "samplers mirostat dry_multiplier repeat_last_n top_k min_keep temperature"
    right = {"prompt": '"a"', "content": '"a"', "messages": '[{"role":"user","content":"a"}]', "n_predict": "1"}
    for field in fields.split():
        for value in (*HOSTILE, *(raw.decode("latin-1") for raw in NOT_JSON if len(raw) < 100)):
            body = ",".join(f'"{name}":{each}' for name, each in {**right, field: value}.items())
            answer = engine.client.post(path, content=("{" + body + "}").encode("latin-1"))
            assert answer.status_code in (200, 400), f"{field}: {value[:40]}: {answer.text}"
