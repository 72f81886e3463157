"""Registering servers: an admin names an address, the console asks what answers there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from scheduler_api import wire
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.kinds.engine import offers_scheduler
from scheduler_api.models import Server, ServerKind
from scheduler_api.targets import Target, check_host, clean_url

type KindChoice = Literal["auto", "engine", "llama_server", "vllm"]

PROBE_S = 5.0
_KEY_NEEDED = "The server asks for a key; give it with the registration."
_LOADING = "The server still loads its model, and does not tell yet what it is; try again, or name its kind."
_KEY_REFUSED = "The server does not accept this key."


@dataclass(frozen=True, slots=True)
class Probe:
    """What answered. `kind` is empty when that is not known: then `text` says why and `field` names the input at fault."""

    kind: str
    text: str
    field: str = "base_url"


def probe(base_url: str, api_key: str = "") -> Probe:
    """Asks an address what it is. Raises RegistrationRefused for an address that may not be asked, ServerUnreachable."""
    url = clean_url(base_url)
    check_host(url)
    target = Target(url, api_key)
    answer = wire.call(target, "GET", "/scheduler", read_s=PROBE_S)
    if offers_scheduler(answer):
        return Probe(ServerKind.ENGINE, "A Slotboard engine, whose policies can be switched.")
    if answer.status in (401, 403):
        return Probe("", _KEY_REFUSED if api_key else _KEY_NEEDED, "api_key")
    if answer.status == 503:
        return Probe("", _LOADING)
    if 300 <= answer.status < 400:
        return Probe("", "The address redirects elsewhere; register the final address.")
    if _is_health(wire.call(target, "GET", "/health", read_s=PROBE_S)):
        return Probe(ServerKind.LLAMA_SERVER, "A llama-server, which is watched by polling.")
    return Probe("", f"Something answers there (status {answer.status}), but neither an engine nor a llama-server.")


def _is_health(answer: wire.Answer) -> bool:
    try:
        value = answer.json()
    except ValueError:
        return False
    return answer.status == 200 and isinstance(value, dict) and "status" in value


def register(
    name: str,
    base_url: str,
    kind: KindChoice = "auto",
    api_key: str = "",
    by: User | None = None,
    *,
    quiet: bool = False,
) -> Server:
    """Keeps a server. With kind "auto" it must answer, and its answer decides; a named kind is taken on trust.

    Raises RegistrationRefused (`field` names the input at fault) and ServerUnreachable.
    """
    name = name.strip()
    if not name or len(name) > 80:
        raise RegistrationRefused("Give the server a name of at most 80 characters.", "name")
    if any(character in api_key for character in "\r\n") or not api_key.isascii():
        raise RegistrationRefused("A key is plain ASCII text of one line.", "api_key")
    url = clean_url(base_url)
    check_host(url)
    chosen = _detected(url, api_key) if kind == "auto" else ServerKind(kind)
    try:
        with transaction.atomic():
            return Server.objects.create(name=name, kind=chosen, base_url=url, api_key=api_key, created_by=by, quiet=quiet)
    except IntegrityError:
        raise RegistrationRefused(f"Another server is already called {name}.", "name") from None


def _detected(url: str, api_key: str) -> str:
    found = probe(url, api_key)
    if not found.kind:
        raise RegistrationRefused(found.text, found.field)
    return found.kind


def move(server: Server, base_url: str, api_key: str | None = None) -> Server:
    """Gives a server another address. A key belongs to one origin: a new one needs the key given again."""
    url = clean_url(base_url)
    check_host(url)
    if _origin(url) != _origin(server.base_url):
        server.api_key = api_key or ""
    elif api_key is not None:
        server.api_key = api_key
    server.base_url = url
    server.save(update_fields=["base_url", "api_key"])
    return server


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()
