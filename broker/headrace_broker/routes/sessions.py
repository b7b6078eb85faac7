"""POST of a session: one request in which client and broker go on talking."""

from aiohttp import web

from headrace.core.errors import InvalidRequestError
from headrace.core.session.frames import MEDIA_TYPE
from headrace.http2.bodies import RequestBody
from headrace.http2.bridge import ResponseWriter
from headrace_broker.routes.parameters import parse_no_query
from headrace_broker.serving import Serving
from headrace_broker.session.session import Session


class SessionsRoute:
    """POST /v1/sessions"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parse_no_query(request.query)
        session = Session(self._serving, _body(request))
        with self._serving.sessions.one_more(session):
            response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
            writer = await response.prepare(request)
            assert isinstance(writer, ResponseWriter), "over HTTP/2"
            await session.run(writer)
            await response.write_eof()
            return response


def _body(request: web.Request) -> RequestBody:
    """Raises InvalidRequestError."""
    content_type = request.headers.get("Content-Type", "")
    if content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise InvalidRequestError(f"Content-Type {content_type!r}: must be {MEDIA_TYPE}", field="Content-Type")
    body: object = request.content
    if not isinstance(body, RequestBody):
        version = f"{request.version.major}.{request.version.minor}"
        raise InvalidRequestError(
            f"HTTP/{version}: a session needs HTTP/2, whose streams go both ways at once; use it, or produce and fetch"
            " by single requests",
            field="HTTP version",
        )
    return body
