"""JSON documents that list much: made in a thread, counted among answers until the client has taken them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from headrace.core.limits import JSON_INLINE_ITEMS_MAX, JSON_ITEM_BYTES
from headrace.http2.bodies import BuffersResponse
from headrace_broker.routes.compression import compressed
from headrace_broker.routes.produce import json_answer
from headrace_broker.serving import Serving

_JSON = "application/json"


async def json_of_many(
    serving: Serving, request: web.Request, items: int, make: Callable[[], dict[str, Any]]
) -> web.StreamResponse:
    """`make` the document, of so many items; nothing else changes what it is made of. Raises ThrottledError."""
    if items <= JSON_INLINE_ITEMS_MAX:
        return json_answer(make())
    with serving.answer_share(request) as share:
        share.take(items * JSON_ITEM_BYTES)
        async with serving.admission.converting(share.taken):
            body = await asyncio.to_thread(lambda: json.dumps(make()).encode() + b"\n")
        share.resize(len(body))
        whole = await compressed(request, web.Response(body=body, content_type=_JSON))
        assert isinstance(whole.body, bytes), "as it was made"
        share.resize(len(whole.body))
        response = BuffersResponse([whole.body], content_type=_JSON, headers=whole.headers)
        # Sent from here: what is on its way counts until it is gone.
        await response.prepare(request)
        await response.write_eof()
        return response
