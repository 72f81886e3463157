"""Errors in llama-server's JSON shape."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "not_found_error",
    408: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class ApiError(Exception):
    """An answer that is an error: status, sentence, and what else the body tells (`field`, `allowed`, token counts)."""

    def __init__(self, status: int, message: str, *, type_: str = "", retry_after: int | None = None, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type_ or _TYPES.get(status, "server_error")
        self.retry_after = retry_after  # whole seconds, for the header of that name
        self.details = details

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.status, "message": self.message, "type": self.type, **self.details}}

    def response(self) -> Response:
        response = json_response(self.body(), self.status)
        if self.retry_after is not None:
            response.headers["Retry-After"] = str(self.retry_after)
        return response


def field_error(name: str, wanted: str, status: int = 400, **details: Any) -> ApiError:
    return ApiError(status, f'Field "{name}" must be {wanted}.', field=name, **details)


def json_response(content: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
