"""The answers of the Kubernetes API as typed errors. `headrace.kube` alone raises them, everything above it handles
them.

While the API server is away `ApiUnavailableError` is ordinary: callers back off and go on with what they know. After it
a write may or may not have landed: read the object again before deciding anew. A `ConflictError` decides nothing
either: another write was there first.
"""

import json
from typing import Any

from headrace.core.errors import HeadraceError, LocalError


class KubeConfigError(LocalError):
    """There is no usable kubeconfig: the message names the file and the remedy."""

    code = "KubeConfig"


class NoKubeConfigError(KubeConfigError):
    """There is no kubeconfig at all, nor is this a pod."""

    code = "NoKubeConfig"


class ApiError(HeadraceError):
    """The API server answered with any other error. `reason` is the CamelCase word of its Status, as `Forbidden`."""

    code = "Api"

    def __init__(self, message: str, *, reason: str = "", **details: object) -> None:
        super().__init__(message, **details)
        self.reason = reason


class ConflictError(ApiError):
    """The object is no longer the one that was read, or its uid is another (HTTP 409): read it again, decide again."""

    code = "ApiConflict"
    status = 409
    retriable = True


class AlreadyExistsError(ApiError):
    """An object of this name is there already (HTTP 409)."""

    code = "ApiAlreadyExists"
    status = 409


class NotFoundError(ApiError):
    """There is no such object, namespace or resource (HTTP 404)."""

    code = "ApiNotFound"
    status = 404


class ForbiddenError(ApiError):
    """The caller is not logged in, or not allowed to do this (HTTP 401, 403)."""

    code = "ApiForbidden"
    status = 403


class InvalidObjectError(ApiError):
    """The object breaks its schema or a rule (HTTP 400, 422); the message is the API server's own."""

    code = "ApiInvalid"
    status = 422


class UnreadableObjectError(ApiError):
    """The object is there, and is not what its kind should be: a user must correct it. Other objects are not
    affected."""

    code = "ApiUnreadable"


class GoneError(ApiError):
    """The resourceVersion is too old to watch from (HTTP 410): list again."""

    code = "ApiGone"
    status = 410
    retriable = True


class ApiUnavailableError(ApiError):
    """The API server did not answer (connection, timeout), or was too busy to (HTTP 429, 5xx)."""

    code = "ApiUnavailable"
    status = 503
    retriable = True


class ApiBusyError(ApiUnavailableError):
    """The API server answered, but not with what was asked for (HTTP 429, 5xx): the next time may be better."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidObjectError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidObjectError,
    429: ApiBusyError,
}


def error_of(status: int, body: bytes, request: str) -> ApiError:
    """Return the error for an answer with this HTTP status; `request` names the request (as `GET /api/v1/pods`)."""
    answer = _parse_status(body)
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or f"HTTP {status}")
    if status >= 500:
        return ApiBusyError(f"{request}: {message}", reason=reason)
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExistsError(message, reason=reason)
    known = _BY_STATUS.get(status)
    return known(message, reason=reason) if known else ApiError(f"{request}: {message}", reason=reason)


def _parse_status(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
