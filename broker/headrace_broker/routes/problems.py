"""Whatever goes wrong becomes a problem document (RFC 9457): typed errors, unknown paths, and our own mistakes."""

import json
import logging
import re

from aiohttp import ClientPayloadError, web
from aiohttp.typedefs import Handler, Middleware

from headrace.core.errors import HeadraceError, RemoteError, UnsupportedEncodingError
from headrace.core.problem import CONTENT_TYPE, to_problem
from headrace_broker.metrics import Metrics

_log = logging.getLogger(__name__)
_TOPIC_RECORDS = re.compile(r"(?P<topic>/v1/namespaces/[^/]+/topics/[^/]+)/records")
_RETRY_AFTER_S = 1
"""Elections and throttling pass about that fast."""


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
        status=error.status, body=json.dumps(to_problem(error)).encode() + b"\n", content_type=CONTENT_TYPE
    )
    if error.retriable:
        response.headers["Retry-After"] = str(_RETRY_AFTER_S)
    if isinstance(error, UnsupportedEncodingError):
        response.headers["Accept-Encoding"] = "gzip, identity"
    return response


def problems_middleware(metrics: Metrics) -> Middleware:
    """Answers every failure of a handler, and counts it by code."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (ConnectionError, ClientPayloadError):
            raise  # the client went away: there is nobody to answer
        except HeadraceError as error:
            failure: HeadraceError = error
        except web.HTTPMethodNotAllowed as error:
            if request.method == "OPTIONS":
                return web.Response(status=204, headers={"Allow": _allowed(error)})
            failure = _method_not_allowed(request, error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            failure = _http_failure(request, error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            failure = InternalError("the broker failed to answer; its log says why")
        metrics.errors.labels(failure.code).inc()
        response = problem_response(failure)
        if isinstance(failure, MethodNotAllowedError):
            response.headers["Allow"] = str(failure.details["allow"])
        return response

    return middleware


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
