"""The shell of a watch: one chunked HTTP response, a line of JSON for each event.

Owns the response until the client leaves, `timeoutSeconds` are over, the history is lost (410, as an ERROR event) or
the server stops. It waits for the history's wake-up, never polls, and holds no queue: what a slow client has not read
yet stays in the history, within its bound.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from headrace.core.limits import DEV_BOOKMARK_INTERVAL_S
from headrace.dev.api.kinds import Kind
from headrace.dev.api.negotiation import Form
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.status import StatusError
from headrace.dev.api.tables import IncludeObject, partial_metadata, table
from headrace.dev.api.watch import Watch, WatchEvent
from headrace.http2.aiohttp_web import web

_LAST_BOOKMARK_S = 1.0
"""A watch that ends by its timeout says how far it came this long before, for a client that also watches the clock."""


class EventEncoder:
    """Events in the form that the client asked for."""

    def __init__(self, kind: Kind, form: Form, include: IncludeObject, now: Callable[[], datetime]) -> None:
        self._kind = kind
        self._form = form
        self._include = include
        self._now = now
        self._knows_columns = False

    def encode(self, events: Iterable[WatchEvent]) -> bytes:
        lines = (to_json({"type": event.type, "object": self._shown(event)}) for event in events)
        return "".join(f"{line}\n" for line in lines).encode()

    def _shown(self, event: WatchEvent) -> Object:
        if event.type == "ERROR" or self._form is Form.OBJECT:
            return event.object
        if self._form is Form.PARTIAL:
            return partial_metadata(event.object)
        meta = {"resourceVersion": event.object["metadata"]["resourceVersion"]}
        if event.type == "BOOKMARK":
            cells = [""] + [None] * (len(self._kind.columns) - 1)
            rows = [{"cells": cells, "object": partial_metadata(event.object)}]
            return {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "columnDefinitions": None,
                "rows": rows,
            }
        shown = table(self._kind, [event.object], meta, self._include, self._now())
        if self._knows_columns:
            # Only the first table of a stream carries the columns.
            shown["columnDefinitions"] = None
        self._knows_columns = True
        return shown


async def stream(request: web.Request, watch: Watch, encoder: EventEncoder) -> web.StreamResponse:
    """Answer `request` with what `watch` sees, until it ends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)

    async def send(events: Iterable[WatchEvent]) -> None:
        if lines := encoder.encode(events):
            await response.write(lines)

    try:
        await _follow(watch, send)
    except StatusError as error:
        await send([WatchEvent("ERROR", error.to_object())])
    except ConnectionResetError:
        return response
    await response.write_eof()
    return response


async def _follow(watch: Watch, send: Callable[[Iterable[WatchEvent]], Awaitable[None]]) -> None:
    deadline = time.monotonic() + watch.timeout_s
    bookmark_at = _next_bookmark(time.monotonic(), deadline) if watch.bookmarks else deadline
    with watch.waking() as wake:
        await send(watch.state())
        while True:
            wake.clear()
            await send(watch.pending())
            now = time.monotonic()
            if watch.closed:
                return
            if bookmark_at <= now and bookmark_at < deadline:  # The last one comes even where it is late for the end.
                await send([*watch.pending(), watch.bookmark()])
                bookmark_at = _next_bookmark(now, deadline)
            if now >= deadline:
                return
            await _wait(wake, min(deadline, bookmark_at) - time.monotonic())


def _next_bookmark(now: float, deadline: float) -> float:
    """In an interval, or shortly before the end; with the end so near, no more."""
    last = deadline - _LAST_BOOKMARK_S
    return min(now + DEV_BOOKMARK_INTERVAL_S, last) if now < last else deadline


async def _wait(wake: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            await wake.wait()
    except TimeoutError:
        return
