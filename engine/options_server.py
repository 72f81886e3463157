"""Flags of the HTTP side: TLS, prefix, cross-origin answers, time limits, logs, the chat template."""

from __future__ import annotations

import argparse
import json
import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.options_env import Env, WholeNumbers, number

# llama-server's verbosity: 0 output only, 1 errors, 2 warnings, 3 info, 4 and more: everything
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

LOG_FORMATS = ("plain", "json")
MAX_DRAIN_S = 86_400


@dataclass(frozen=True, slots=True)
class Cors:
    """`origins` holds `*` (any), `localhost` (any port of this machine) or whole origins."""

    origins: tuple[str, ...] = ("*",)
    methods: str = "GET, POST, DELETE, OPTIONS"
    headers: str = "*"
    credentials: bool = True


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """`timeout_s` bounds how long a request may take to arrive; `ping_s` is a stream's pause before a sign of life."""

    api_prefix: str = ""
    ssl_key: Path | None = None
    ssl_cert: Path | None = None
    cors: Cors = field(default_factory=Cors)
    timeout_s: int = 3600
    ping_s: int = 30
    reuse_port: bool = False
    chat_template: str = ""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)  # for what requests leave out of theirs
    prefill_assistant: bool = True  # an assistant's message at the end is the beginning of the answer
    log_level: int = logging.INFO
    log_file: Path | None = None
    log_format: str = "plain"  # or "json"
    drain_s: float = 0.0  # how long running tasks may go on after the first signal


def add_server_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("HTTP")
    add, whole, plain = group.add_argument, WholeNumbers(group, env), Cors()
    add("--api-prefix", default=env.text("LLAMA_ARG_API_PREFIX", ""), metavar="PATH", help="every route lies under this path")
    add("--ssl-key-file", default=env.text("LLAMA_ARG_SSL_KEY_FILE", ""), metavar="PATH", help="key for TLS, as PEM")
    add("--ssl-cert-file", default=env.text("LLAMA_ARG_SSL_CERT_FILE", ""), metavar="PATH", help="certificate for TLS, as PEM")
    origins = env.text("LLAMA_ARG_CORS_ORIGINS", "*")
    add("--cors-origins", default=origins, metavar="A,B", help="pages that may call; *: any; localhost: those of this machine")
    add("--cors-methods", default=env.text("LLAMA_ARG_CORS_METHODS", plain.methods), metavar="A,B", help="methods they may use")
    add("--cors-headers", default=env.text("LLAMA_ARG_CORS_HEADERS", plain.headers), metavar="A,B", help="headers they may send")
    credentials = env.switch("LLAMA_ARG_CORS_CREDENTIALS") is not False
    add("--cors-credentials", dest="cors_credentials", action="store_true", default=credentials, help="they may send credentials")
    add("--no-cors-credentials", dest="cors_credentials", action="store_false", help="they may not")
    text = "seconds within which a request must have arrived (default 3600)"
    whole.add("-to", "--timeout", env="LLAMA_ARG_TIMEOUT", default=3600, low=1, high=10**6, text=text)
    text = "seconds without output after which a stream gets a sign of life; -1: never (default 30)"
    whole.add("--sse-ping-interval", env="LLAMA_ARG_SSE_PING_INTERVAL", default=30, low=-1, high=86_400, text=text)
    reuse = bool(env.switch("LLAMA_ARG_REUSE_PORT"))
    add("--reuse-port", action="store_true", default=reuse, help="other processes may listen on the port too")
    add("--chat-template", default=env.text("LLAMA_ARG_CHAT_TEMPLATE", ""), metavar="JINJA", help="in place of the model's own")
    add("--chat-template-file", default=env.text("LLAMA_ARG_CHAT_TEMPLATE_FILE", ""), metavar="PATH", help="the same from a file")
    kwargs = env.text("LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "")
    add("--chat-template-kwargs", default=kwargs, metavar="JSON", help="an object of variables for the template")
    prefill = env.switch("LLAMA_ARG_PREFILL_ASSISTANT") is not False
    add("--prefill-assistant", action="store_true", default=prefill, help="an answer goes on from an assistant's last message")
    add("--no-prefill-assistant", dest="prefill_assistant", action="store_false", help="that message is one like the others")
    add("--log-disable", action="store_true", help="no log")
    add("--log-file", default=env.text("LLAMA_ARG_LOG_FILE", ""), metavar="PATH", help="the log goes there too")
    log_format = env.text("LOG_FORMAT", "plain")
    add("--log-format", choices=LOG_FORMATS, default=log_format, help="json: one object a line (default plain)")
    text = "seconds that running tasks may go on after SIGTERM or SIGINT; a second signal ends them (default 0)"
    drain = env.real("--drain-timeout", "DRAIN_TIMEOUT", 0.0, number(0, MAX_DRAIN_S))
    add("--drain-timeout", type=number(0, MAX_DRAIN_S), default=drain, metavar="SECONDS", help=text)
    text = "0: nothing, 1: errors, 2: warnings, 3 (default): also cohorts and policy changes, 4: everything"
    names = ("-lv", "--verbosity", "--log-verbosity")
    whole.add(*names, env="LLAMA_ARG_LOG_VERBOSITY", default=3, low=0, high=99, text=text)
    add("-v", "--verbose", "--log-verbose", action="store_true", help="as --log-verbosity 4")


def server_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> ServerOptions:
    prefix = args.api_prefix.rstrip("/")
    if prefix and not prefix.startswith("/"):
        parser.error(f"argument --api-prefix: {args.api_prefix!r} does not begin with a slash")
    key, cert = _tls(parser, args.ssl_key_file, args.ssl_cert_file)
    origins = tuple(part.strip().rstrip("/") for part in args.cors_origins.split(",") if part.strip())
    if args.log_format not in LOG_FORMATS:  # argparse does not check a default, which may come from the environment
        parser.error(f"argument --log-format: {args.log_format!r} is not one of {', '.join(LOG_FORMATS)}")
    verbosity = 4 if args.verbose else args.verbosity
    return ServerOptions(
        api_prefix=prefix,
        ssl_key=key,
        ssl_cert=cert,
        cors=Cors(origins, args.cors_methods, args.cors_headers, args.cors_credentials),
        timeout_s=args.timeout,
        ping_s=max(0, args.sse_ping_interval),
        reuse_port=args.reuse_port,
        chat_template=_template(parser, args.chat_template, args.chat_template_file),
        chat_template_kwargs=_kwargs(parser, args.chat_template_kwargs),
        prefill_assistant=args.prefill_assistant,
        log_level=logging.CRITICAL + 1 if args.log_disable else _LEVELS[min(verbosity, len(_LEVELS) - 1)],
        log_file=Path(args.log_file) if args.log_file else None,
        log_format=args.log_format,
        drain_s=args.drain_timeout,
    )


def _tls(parser: argparse.ArgumentParser, key: str, cert: str) -> tuple[Path | None, Path | None]:
    if not key and not cert:
        return None, None
    if not key or not cert:
        parser.error("TLS needs both --ssl-key-file and --ssl-cert-file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as exc:
        parser.error(f"arguments --ssl-key-file, --ssl-cert-file: they cannot be used: {exc}")
    return Path(key), Path(cert)


def _kwargs(parser: argparse.ArgumentParser, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        parser.error(f"argument --chat-template-kwargs: {text!r} is no JSON object")
    return value


def _template(parser: argparse.ArgumentParser, text: str, path: str) -> str:
    if path:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            parser.error(f"argument --chat-template-file: {path} cannot be read: {exc}")
    if text and "{" not in text and text != "chatml":
        parser.error(f"argument --chat-template: {text!r} is no Jinja template; the only one known by name is chatml")
    return text
