"""JSON documents in requests and answers, but for those of records (`record_bodies`).

Small ones are read and made at once. Large ones wait for their turn (`Admission.converting`) and are read or made in a
thread; an answer is then counted among answers until the client has taken it.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from headrace.core.errors import InvalidRequestError
from headrace.core.limits import JSON_INLINE_BYTES_MAX
from headrace.http2.bodies import BuffersResponse
from headrace_broker.admission import Admission, BudgetShare
from headrace_broker.http.callers import Callers
from headrace_broker.http.record_bodies import compressed
from headrace_broker.http.uploads import Chunks

JSON_INLINE_ITEMS_MAX = 500
"""The items of an answer about groups: with more it is made beside the event loop, five microseconds for each."""
JSON_ITEM_BYTES = 200
"""The bytes that one is counted for until the answer is made."""

T = TypeVar("T")
_JSON = "application/json"


def json_answer(document: Any, status: int = 200) -> web.Response:
    """Return a document as one line, which terminals show whole."""
    return web.Response(status=status, body=json.dumps(document).encode() + b"\n", content_type=_JSON)


class JsonBodies:
    def __init__(self, callers: Callers, admission: Admission) -> None:
        self._callers = callers
        self._admission = admission

    def body_share(self, request: web.Request) -> BudgetShare:
        """Return the share that the body of the request is counted in."""
        return self._callers.body_share(request)

    async def parsed(self, chunks: Chunks, parse: Callable[[Any], T]) -> T:
        """Return what `parse` makes of the document. Raises InvalidRequestError, and what `parse` raises."""
        size = sum(map(len, chunks))
        if size <= JSON_INLINE_BYTES_MAX:
            return parse(_document(chunks))
        async with self._admission.converting(size):
            return await asyncio.to_thread(lambda: parse(_document(chunks)))

    async def answer_of_many(
        self, request: web.Request, items: int, make: Callable[[], dict[str, Any]]
    ) -> web.StreamResponse:
        """Answer with the document of so many items from `make`; its source must not change. Raises ThrottledError."""
        if items <= JSON_INLINE_ITEMS_MAX:
            return json_answer(make())
        with self._callers.answer_share(request) as share:
            share.take(items * JSON_ITEM_BYTES)
            async with self._admission.converting(share.taken):
                body = await asyncio.to_thread(lambda: json.dumps(make()).encode() + b"\n")
            share.resize(len(body))
            whole = await compressed(request, web.Response(body=body, content_type=_JSON))
            assert isinstance(whole.body, bytes), "as it was made"
            share.resize(len(whole.body))
            response = BuffersResponse([whole.body], content_type=_JSON, headers=whole.headers)
            # It is sent from here, because what is on its way counts until it is gone.
            await response.prepare(request)
            await response.write_eof()
            return response


def _document(chunks: Chunks) -> Any:
    """Return the JSON document. Raises InvalidRequestError."""
    try:
        return json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", field="body") from error
