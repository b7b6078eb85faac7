"""How schemathesis' requests get to a broker: by the HTTP/1.1 of `requests`, or by our own HTTP/2 client.

Both compress the bodies whose `Content-Encoding` says so, and listen to a watch for a moment only.
"""

import asyncio
import gzip
import io
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError as LostConnection
from requests.exceptions import InvalidHeader
from urllib3.exceptions import ReadTimeoutError
from urllib3.response import HTTPResponse

from headrace.core.errors import HeadraceError
from headrace.http2 import async_transport
from headrace.http2.events import LocalProtocolError

_T = TypeVar("_T")
_WATCH_S = 0.15
_ANSWER_S = 30
_OF_THE_CONNECTION = frozenset({"connection", "transfer-encoding", "content-length", "host"})
"""HTTP/2 has other means for these (RFC 9113, 8.2.2)."""


class BrokerAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if request.headers.get("Content-Encoding") == "gzip":
            request.prepare_body(gzip.compress(body_of(request)), None)
        return self.exchange(request, *args, **kwargs)

    def exchange(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if not is_watch(request):
            return super().send(request, *args, **kwargs)
        response = super().send(request, *args, **kwargs)
        arrived = b""
        if response.raw.connection is not None and response.raw.connection.sock is not None:
            response.raw.connection.sock.settimeout(_WATCH_S)
        try:
            while chunk := response.raw.read1(1 << 16, decode_content=True):
                arrived += chunk
        except ReadTimeoutError:
            response.close()
        response._content = arrived
        return response


class Http2Adapter(BrokerAdapter):
    """Has a thread with an event loop to itself, for as long as the process runs."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._transport = self._run(made())

    def exchange(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        return self.build_response(request, self._run(self._exchange(request)))

    async def _exchange(self, request: PreparedRequest) -> HTTPResponse:
        answer = await self._transport.request(
            str(request.method), str(request.url), headers=http2_headers(request.headers), body=body_of(request)
        )
        content = await listened(answer) if is_watch(request) else await answer.read()
        return HTTPResponse(io.BytesIO(content), answer.headers, answer.status, version=20, preload_content=False)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S)
        except LocalProtocolError as error:
            raise InvalidHeader(str(error)) from error
        except HeadraceError as error:
            raise LostConnection(str(error)) from error


async def made() -> async_transport.AsyncTransport:
    return async_transport.AsyncTransport()


async def listened(answer: async_transport.AsyncResponse) -> bytes:
    """What comes of an answer within `_WATCH_S`."""
    arrived = bytearray()
    try:
        async with asyncio.timeout(_WATCH_S):
            async for chunk in answer.chunks():
                arrived += chunk
    except TimeoutError:
        answer.cancel()
    return bytes(arrived)


def http2_headers(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    text = {
        name.lower(): value if isinstance(value, str) else value.decode("latin-1") for name, value in headers.items()
    }
    return {name: value for name, value in text.items() if name not in _OF_THE_CONNECTION}


def body_of(request: PreparedRequest) -> bytes:
    body = request.body or b""
    if isinstance(body, str):
        return body.encode()
    assert isinstance(body, bytes)
    return body


def is_watch(request: PreparedRequest) -> bool:
    return request.method == "GET" and "watch=true" in str(request.url)
