"""Errors of the API as `application/problem+json` (RFC 9457): type, title, status, a sentence in `detail`, and more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, NinjaAPI, Schema
from ninja.errors import HttpError, Throttled, ValidationError
from pydantic import ConfigDict

from scheduler_api import strict_json
from scheduler_api.exceptions import RegistrationRefused, ServerUnreachable, SwitchRefused

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
#: Begins the `type` of problems that say more than their status; of the others it is "about:blank".
URN = "urn:slotboard:problem:"
#: Of each such problem: its title, which is the same each time.
TITLES = {
    "invalid": "The request is not valid",
    "refused": "The request is refused",
    "conflict": "Something else stands in the way",
    "version-conflict": "The policy was changed meanwhile",
    "confirm": "This is to be confirmed",
    "cannot": "This kind of server cannot do that",
    "unreachable": "The server gives no usable answer",
    "rate-limit": "Too many requests",
}
#: Of refusals in words that django-ninja or scheduler_api.api_auth raise.
KINDS = {400: "invalid", 422: "invalid", 429: "rate-limit"}
MOST_TOLD = 3
WINDOW_S = 60  # for which wrong tokens are not looked at: scheduler_api.api_auth


class Fault(Schema):
    """One thing that is wrong with a request: where, and what. `line` of a text that has lines, from 1."""

    field: str
    text: str
    line: int | None = None


class Problem(Schema):
    """`field`: the input at fault. `errors`: all of them. `current`: the policy in force. `cautions`: what is to be confirmed."""

    type: str = Field(..., description=f"about:blank, or {URN} and a word")
    title: str
    status: int
    detail: str = Field(..., description="one or two sentences, the cause first")
    field: str | None = None
    errors: list[Fault] | None = None
    current: dict[str, Any] | None = None
    cautions: list[str] | None = None
    retry_after_s: int | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "No such server."}]
        }
    )


class Refused(Exception):
    """A refusal of the API's own, as a problem of the kind `kind` (one of TITLES)."""

    def __init__(self, status: int, kind: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.status, self.kind, self.text, self.more = status, kind, text, more


def invalid(text: str, field: str) -> Refused:
    return Refused(422, "invalid", text, field=field, errors=[{"field": field, "text": text}])


def answer(status: int, detail: str, kind: str = "", headers: Mapping[str, str] | None = None, **more: Any) -> HttpResponse:
    """`more`: further members; those that are None or empty are left out."""
    title = TITLES[kind] if kind else HTTPStatus(status).phrase
    told = {"type": URN + kind if kind else "about:blank", "title": title, "status": status, "detail": detail}
    told |= {name: value for name, value in more.items() if value not in (None, "", [])}
    return HttpResponse(strict_json.dumps(told), status=status, content_type=MEDIA_TYPE, headers=headers)


def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
    status = error.status_code
    headers = {401: {"WWW-Authenticate": 'Bearer realm="slotboard"'}, 429: {"Retry-After": str(WINDOW_S)}}.get(status)
    detail = str(error)
    if status == 401 and detail == "Unauthorized":
        detail = "This needs a session or an API token: Authorization: Bearer …"
    if status == 400:
        detail = "The body cannot be read as a JSON object; NaN, Infinity and NUL characters are none."
    if status == 403 and detail.lower().startswith("csrf"):
        detail = "A write of a session needs its CSRF token in X-CSRFToken; an API token needs none."
    return answer(status, detail, KINDS.get(status, ""), headers)


def _throttled(request: HttpRequest, error: Throttled) -> HttpResponse:
    """The header Retry-After is set by django-ninja."""
    seconds = error.wait or 1
    return answer(429, f"Too many requests; go on in {seconds} s.", "rate-limit", retry_after_s=seconds)


def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    faults = [{"field": _field(each["loc"]), "text": _words(each)} for each in error.errors]
    told = [f"{fault['field']}: {fault['text']}." if fault["field"] else f"{fault['text']}." for fault in faults]
    more = [f"And {len(told) - MOST_TOLD} more."] if len(told) > MOST_TOLD else []
    return answer(422, " ".join([*told[:MOST_TOLD], *more]), "invalid", field=faults[0]["field"], errors=faults)


def _field(loc: tuple[str | int, ...]) -> str:
    """("body", "body", "guards", 0, "over") is guards.0.over; ("query", "limit") is limit."""
    return ".".join(map(str, loc[2:] if loc[0] == "body" else loc[1:]))


def _words(fault: Mapping[str, Any]) -> str:
    """What was given is not repeated: it may be a secret in the wrong place."""
    return str(fault["msg"]).removeprefix("Value error, ").rstrip(".")


def _not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return answer(404, str(error) or "Not here.")


def _forbidden(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return answer(403, str(error) or "This is not allowed.")


def _switch_refused(request: HttpRequest, error: SwitchRefused) -> HttpResponse:
    status = error.status if error.status in (409, 422, 501) else 502
    kind = {409: "version-conflict", 422: "refused", 501: "cannot", 502: "unreachable"}[status]
    return answer(status, error.text, kind, field=error.field, current=error.current)


def _unreachable(request: HttpRequest, error: ServerUnreachable) -> HttpResponse:
    return answer(502, error.text, "unreachable")


def _registration_refused(request: HttpRequest, error: RegistrationRefused) -> HttpResponse:
    return answer(422, error.text, "invalid", field=error.field, errors=[{"field": error.field, "text": error.text}])


def _out_of_range(request: HttpRequest, error: OverflowError) -> HttpResponse:
    return answer(422, "A date or a number is out of range.", "invalid")


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return answer(error.status, error.text, error.kind, **error.more)


def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("%s %s failed.", request.method, request.path, exc_info=error)
    return answer(500, "The console failed at this request; its log says how.")


type Handlers = Mapping[type[Exception], Callable[[HttpRequest, Any], HttpResponse]]

HANDLERS: Handlers = {
    Exception: _failed,
    HttpError: _http,
    Throttled: _throttled,
    ValidationError: _invalid,
    Http404: _not_found,
    PermissionDenied: _forbidden,
    SwitchRefused: _switch_refused,
    ServerUnreachable: _unreachable,
    RegistrationRefused: _registration_refused,
    OverflowError: _out_of_range,
    Refused: _refused,
}


def handle(api: NinjaAPI, handlers: Handlers = HANDLERS) -> None:
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
