"""TLS, streams included: the short cut to the socket must not write into an encrypted connection."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
import trustme

from tests.support.engine import ROOT, sse_data

pytestmark = pytest.mark.model


def test_answers_and_streams_are_encrypted(tmp_path: Path) -> None:
    output = tmp_path / "output"
    authority = trustme.CA()
    certificate, key = authority.issue_cert("127.0.0.1"), tmp_path / "key.pem"
    key.write_bytes(certificate.private_key_pem.bytes())
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    flags = ["--ssl-key-file", str(key), "--ssl-cert-file", str(chain), "-np", "1", "-c", "512"]
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", "--port", "0", "--threads", "1", "--mlock", *flags],
            cwd=ROOT,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 60
        while "Serving" not in output.read_text() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        said = output.read_text()
        found = re.search(r"https://127\.0\.0\.1:\d+", said)
        assert found is not None, said
        assert "--mlock has no effect here.\n" in said
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        with httpx2.Client(base_url=found.group(), verify=trust, timeout=30) as client:
            body = {"prompt": "hello", "n_predict": 40, "temperature": 0}
            whole = client.post("/completion", json=body).json()
            with client.stream("POST", "/completion", json={**body, "stream": True}) as response:
                chunks = list(sse_data(response.iter_lines()))
        assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    finally:
        process.terminate()
        assert process.wait(10) == 0
