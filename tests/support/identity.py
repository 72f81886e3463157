"""An OpenID Connect provider on loopback, as small as the standard allows: discovery, code flow with PKCE, signed ID tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

NORA = {"sub": "u-17", "preferred_username": "nora", "email": "nora@example.org"}
CLIENT_ID, CLIENT_SECRET = "slotboard", "a-client-secret"


@dataclass
class Provider:
    """Whoever comes to /authorize is `person` already. `audience` and `accepts` let a test make it misbehave."""

    url: str = ""
    person: dict[str, str] = field(
        default_factory=lambda: {"sub": "u-17", "preferred_username": "nora", "email": "nora@example.org"}
    )
    audience: str = CLIENT_ID
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def configuration(self) -> dict[str, Any]:
        paths = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        found: dict[str, Any] = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in paths.items()}
        return found | {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def jwks(self) -> dict[str, Any]:
        return {"keys": [jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True) | {"kid": "k1", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return None
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(verifier).rstrip(b"=").decode() != asked.get("code_challenge"):
            return None
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.audience, "iat": now, "exp": now + 60, **self.person}
        signed = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "k1"})
        return {"access_token": "an-access-token", "token_type": "Bearer", "expires_in": 60, "id_token": signed}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            match parts.path:
                case "/.well-known/openid-configuration":
                    self.answer(200, provider.configuration())
                case "/jwks":
                    self.answer(200, provider.jwks())
                case "/userinfo" if self.headers["Authorization"] == "Bearer an-access-token":
                    self.answer(200, dict(provider.person))
                case _:
                    self.answer(404, {})

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            found = provider.token({key: values[0] for key, values in form.items()})
            self.answer(200 if found else 400, found or {"error": "invalid_grant"})

        def answer(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
