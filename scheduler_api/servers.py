"""Registering servers: an admin names an address, the console asks what answers there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from scheduler_api import audit, wire
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.kinds.engine import offers_scheduler
from scheduler_api.kinds.llama_state import METRICS_OFF, SLOTS_OFF
from scheduler_api.kinds.openai_state import NO_SLOTS, listed
from scheduler_api.kinds.vllm_metrics import looks_like
from scheduler_api.kinds.vllm_state import NO_METRICS, OTHERS
from scheduler_api.models import Server, ServerKind
from scheduler_api.targets import Target, check_host, clean_url, origin_of

type KindChoice = Literal["auto", "engine", "llama_server", "vllm", "openai"]

PROBE_S = 5.0
#: Kinds whose requests name a model, and whose addresses are often given with the `/v1` of their routes.
OF_V1 = (ServerKind.VLLM, ServerKind.OPENAI)
_KEY_NEEDED = "The server asks for a key; give it with the registration."
_LOADING = "The server still loads its model, and does not tell yet what it is; try again, or name its kind."
AS_OPENAI = "Named as an OpenAI-compatible server it can be loaded all the same, and is watched for whether it answers."
_KEY_REFUSED = "The server does not accept this key."


@dataclass(frozen=True, slots=True)
class Probe:
    """What answered. `kind` is empty when that is not known: then `text` says why and `field` names the input at fault.

    `missing` has a sentence for each thing that this server could offer and does not.
    """

    kind: str
    text: str
    field: str = "base_url"
    missing: tuple[str, ...] = ()


def probe(base_url: str, api_key: str = "") -> Probe:
    """Asks an address what it is. Raises RegistrationRefused for an address that may not be asked, ServerUnreachable."""
    url = _root(clean_url(base_url))
    check_host(url)
    target = Target(url, api_key)
    answer = wire.call(target, "GET", "/scheduler", read_s=PROBE_S)
    if offers_scheduler(answer):
        return Probe(ServerKind.ENGINE, "A Slotboard engine, whose policies can be switched.")
    if (refusal := _refusal(answer, api_key)) is not None:
        return refusal
    health = wire.call(target, "GET", "/health", read_s=PROBE_S)
    if _is_health(health):
        return _probe_llama_server(target)
    if health.status == 200:
        return _probe_by_metrics(target)
    return _probe_by_models(target) or Probe(
        "", f"Something answers there (status {answer.status}), but none of the servers that are known here."
    )


def _refusal(answer: wire.Answer, api_key: str) -> Probe | None:
    """Why an answer does not tell what the server is; None when it may."""
    if answer.status in (401, 403):
        return Probe("", _KEY_REFUSED if api_key else _KEY_NEEDED, "api_key")
    if answer.status == 503:
        return Probe("", _LOADING)
    if 300 <= answer.status < 400:
        return Probe("", "The address redirects elsewhere; register the final address.")
    return None


def _probe_llama_server(target: Target) -> Probe:
    answer = wire.call(target, "GET", "/props", read_s=PROBE_S)
    if (refusal := _refusal(answer, target.api_key)) is not None:
        return refusal
    if answer.status != 200 and (other := _probe_by_models(target)) is not None:
        return other
    props = _object(answer)
    if props.get("role") == "router":
        return Probe(ServerKind.LLAMA_SERVER, "A llama-server that routes to several models, watched by polling.")
    off = ((SLOTS_OFF, props.get("endpoint_slots")), (METRICS_OFF, props.get("endpoint_metrics")))
    missing = tuple(why for why, offered in off if offered is False)
    return Probe(ServerKind.LLAMA_SERVER, "A llama-server, which is watched by polling.", missing=missing)


def _probe_by_metrics(target: Target) -> Probe:
    """Servers that answer /health with nothing but its status are told apart by the names of their metrics."""
    answer = wire.call(target, "GET", "/metrics", read_s=PROBE_S)
    if (refusal := _refusal(answer, target.api_key)) is not None:
        return refusal
    whose = looks_like(answer.body.decode("utf-8", "replace")) if answer.status == 200 else ""
    if whose == "vLLM":
        return Probe(ServerKind.VLLM, "A vLLM, which is watched through /metrics.")
    if whose:
        return Probe("", f"{OTHERS.format(whose=whose)} {AS_OPENAI}", "kind")
    found = _probe_by_models(target)
    if found is not None and found.kind == ServerKind.VLLM:
        return replace(found, missing=(NO_METRICS.format(status=answer.status),))
    return found or Probe("", "Something answers /health there, but neither its metrics nor its models tell what it is.")


def _probe_by_models(target: Target) -> Probe | None:
    """By what it lists under /v1/models; None when that is no such list."""
    answer = wire.call(target, "GET", "/v1/models", read_s=PROBE_S)
    if (refusal := _refusal(answer, target.api_key)) is not None:
        return refusal
    models = listed(answer)
    if models is None:
        return None
    owners = {each.get("owned_by") for each in models}
    if "vllm" in owners:
        return Probe(ServerKind.VLLM, "A vLLM.")
    if "llamacpp" in owners:
        return Probe(ServerKind.LLAMA_SERVER, "A llama-server, which is watched by polling.")
    return Probe(ServerKind.OPENAI, "An OpenAI-compatible server, of which it is known whether it answers.", missing=(NO_SLOTS,))


def _root(url: str) -> str:
    return url.removesuffix("/v1")


def _object(answer: wire.Answer) -> dict[str, Any]:
    try:
        value = answer.json() if answer.status == 200 else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_health(answer: wire.Answer) -> bool:
    return "status" in _object(answer)


def register(
    name: str,
    base_url: str,
    kind: KindChoice = "auto",
    api_key: str = "",
    by: User | None = None,
    *,
    quiet: bool = False,
    model: str = "",
) -> Server:
    """Keeps a server. With kind "auto" it must answer, and its answer decides; a named kind is taken on trust.

    `model`: what requests to an OpenAI-compatible server name, in place of the first that it lists. An address with the `/v1` of
    its routes is taken without it. Raises RegistrationRefused (`field` names the input at fault) and ServerUnreachable.
    """
    name = name.strip()
    if not name or len(name) > 80:
        raise RegistrationRefused("Give the server a name of at most 80 characters.", "name")
    if any(character in api_key for character in "\r\n") or not api_key.isascii():
        raise RegistrationRefused("A key is plain ASCII text of one line.", "api_key")
    url = clean_url(base_url)
    check_host(url)
    chosen = _detected(url, api_key) if kind == "auto" else ServerKind(kind)
    url = _root(url) if kind == "auto" or chosen in OF_V1 else url
    model = model.strip()
    if model and (chosen not in OF_V1 or len(model) > 200):
        raise RegistrationRefused(
            "A model is named for vLLM and OpenAI-compatible servers alone, in at most 200 characters.", "model"
        )
    try:
        with transaction.atomic():
            server = Server.objects.create(
                name=name, kind=chosen, base_url=url, api_key=api_key, model=model, created_by=by, quiet=quiet
            )
            audit.record("server.registered", name, server=server, actor=by, after=_told(server))
            return server
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
    url = _root(url) if server.kind in OF_V1 else url
    check_host(url)
    if origin_of(url) != origin_of(server.base_url):
        server.api_key = api_key or ""
    elif api_key is not None:
        server.api_key = api_key
    before = _told(Server.objects.get(pk=server.pk))
    server.base_url = url
    with transaction.atomic():
        server.save(update_fields=["base_url", "api_key"])
        audit.record("server.moved", server.name, server=server, before=before, after=_told(server))
    return server


def _told(server: Server) -> dict[str, Any]:
    """What the audit trail keeps of a registration; of a key only whether there is one."""
    told = {"kind": server.kind, "base_url": server.base_url, "quiet": server.quiet, "has_key": bool(server.api_key)}
    return told | {"model": server.model} if server.model else told
