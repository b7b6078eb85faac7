"""POST of a session or of a replication stream: one request in which both sides go on talking."""

from aiohttp import web

from headrace.core.errors import InvalidRequestError
from headrace.core.frames.frame import MEDIA_TYPE as SESSION
from headrace.core.frames.replication_messages import MEDIA_TYPE as REPLICATION
from headrace.core.holders import holder_of
from headrace.http2.bodies import RequestBody
from headrace.http2.bridge import ResponseWriter
from headrace_broker.replication.served_stream import ServedStream
from headrace_broker.routes.parameters import parse_no_query
from headrace_broker.serving import Serving
from headrace_broker.session.session import Session


class SessionsRoute:
    """POST /v1/sessions"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parse_no_query(request.query)
        if is_replication(request):
            return await self._replicate(request)
        holder = self._serving.holder(request)
        session = Session(self._serving, _body(request), holder)
        with self._serving.sessions.one_more(session, holder):
            response, writer = await _begun(request, SESSION)
            await session.run(writer)
            await response.write_eof()
            return response

    async def _replicate(self, request: web.Request) -> web.StreamResponse:
        stream = ServedStream(self._serving, _body(request))
        with self._serving.followers.one_more(stream, holder_of(request.remote or "")):
            response, writer = await _begun(request, REPLICATION)
            await stream.run(writer)
            await response.write_eof()
            return response


def is_replication(request: web.Request) -> bool:
    """Whether another broker follows here: that is refused for no load of clients."""
    return request.path == "/v1/sessions" and _content_type(request) == REPLICATION


async def _begun(request: web.Request, content_type: str) -> tuple[web.StreamResponse, ResponseWriter]:
    response = web.StreamResponse(headers={"Content-Type": content_type})
    writer = await response.prepare(request)
    assert isinstance(writer, ResponseWriter), "over HTTP/2"
    return response, writer


def _content_type(request: web.Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _body(request: web.Request) -> RequestBody:
    """Raises InvalidRequestError."""
    if _content_type(request) not in (SESSION, REPLICATION):
        content_type = request.headers.get("Content-Type", "")
        raise InvalidRequestError(f"Content-Type {content_type!r}: must be {SESSION}", field="Content-Type")
    body: object = request.content
    if not isinstance(body, RequestBody):
        version = f"{request.version.major}.{request.version.minor}"
        raise InvalidRequestError(
            f"HTTP/{version}: a session needs HTTP/2, whose streams go both ways at once; use it, or produce and fetch"
            " by single requests",
            field="HTTP version",
        )
    return body
