"""Whatever goes wrong becomes a problem document (RFC 9457): typed errors, unknown paths, and our own mistakes."""

import json
import logging
import re

from aiohttp import ClientPayloadError, web

from headrace.core.errors import PROBLEM_CONTENT_TYPE, HeadraceError, RemoteError, UnsupportedEncodingError, to_problem
from headrace.core.limits import RETRY_AFTER_S
from headrace_broker.metrics import Metrics

_log = logging.getLogger(__name__)
_TOPIC_RECORDS = re.compile(r"(?P<topic>/v1/namespaces/[^/]+/topics/[^/]+)/records")


class UnknownPathError(RemoteError):
    """No route has this path (HTTP 404)."""

    code = "UnknownPath"
    status = 404


class MethodNotAllowedError(RemoteError):
    """The path exists, with other methods (HTTP 405); `allow` lists them."""

    code = "MethodNotAllowed"
    status = 405


class InternalError(RemoteError):
    """A mistake of the broker's own (HTTP 500); its log has the traceback."""

    code = "Internal"
    status = 500


def problem_response(error: HeadraceError) -> web.Response:
    response = web.Response(
        status=error.status, body=json.dumps(to_problem(error)).encode() + b"\n", content_type=PROBLEM_CONTENT_TYPE
    )
    if error.retriable:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, UnsupportedEncodingError):
        response.headers["Accept-Encoding"] = "gzip, identity"
    return response


def answer_of(request: web.Request, error: Exception, metrics: Metrics) -> web.Response:
    """What the client is told of a handler's failure, which is counted by code. Raised where nobody is to be told."""
    if isinstance(error, (ConnectionError, ClientPayloadError)):
        raise error  # the client went away
    if isinstance(error, web.HTTPException) and error.status < 400:
        raise error
    if isinstance(error, web.HTTPMethodNotAllowed) and request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": _allowed(error)})
    failure = _failure(request, error)
    metrics.errors.labels(failure.code).inc()
    response = problem_response(failure)
    if isinstance(failure, MethodNotAllowedError):
        response.headers["Allow"] = str(failure.details["allow"])
    return response


def _failure(request: web.Request, error: Exception) -> HeadraceError:
    match error:
        case HeadraceError():
            return error
        case web.HTTPMethodNotAllowed():
            return _method_not_allowed(request, error)
        case web.HTTPException():
            return _http_failure(request, error)
        case _:
            _log.error("%s %s failed", request.method, request.path, exc_info=error)
            return InternalError("the broker failed to answer; its log says why")


def _http_failure(request: web.Request, error: web.HTTPException) -> HeadraceError:
    if error.status == 404:
        return UnknownPathError(f"{request.method} {request.path}: there is no such path; GET /openapi.json lists them")
    return InternalError(f"{request.method} {request.path}: {error.reason}")


def _method_not_allowed(request: web.Request, error: web.HTTPMethodNotAllowed) -> MethodNotAllowedError:
    said = f"{request.method} {request.path}: this path takes {_allowed(error)}"
    # Records are read where they have offsets: whoever produced to a topic looks for them under the same path first.
    topic = _TOPIC_RECORDS.fullmatch(request.path)
    if topic is not None:
        said += f"; records are read and deleted at {topic['topic']}/partitions/{{partition}}/records"
    return MethodNotAllowedError(said, allow=_allowed(error))


def _allowed(error: web.HTTPMethodNotAllowed) -> str:
    return ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
