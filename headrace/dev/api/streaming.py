"""The shell of a watch: one chunked HTTP response, a line of JSON for each event.

Owns the response until the client leaves, `timeoutSeconds` are over, the history is lost (410, as an ERROR event) or
the server stops. It waits for the history's wake-up, never polls, and holds no queue: what a slow client has not read
yet stays in the history, within its bound.
"""

import asyncio
import time
from collections.abc import Iterable

from aiohttp import web

from headrace.core.limits import DEV_BOOKMARK_INTERVAL_S
from headrace.dev.api.kinds import Kind
from headrace.dev.api.negotiation import Form, Representation
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.operations import Operations
from headrace.dev.api.status import StatusError
from headrace.dev.api.tables import IncludeObject, partial_metadata, table
from headrace.dev.api.watch import Watch, WatchEvent, WatchOptions

_LAST_BOOKMARK_S = 1.0
"""A watch that ends by its timeout says how far it came this long before."""


class EventWriter:
    """Writes events in the form that the client asked for."""

    def __init__(
        self, response: web.StreamResponse, operations: Operations, kind: Kind, form: Form, include: IncludeObject
    ) -> None:
        self._response = response
        self._operations = operations
        self._kind = kind
        self._form = form
        self._include = include
        self._knows_columns = False

    async def write(self, events: Iterable[WatchEvent]) -> None:
        lines = [to_json({"type": event.type, "object": self._encoded(event)}) for event in events]
        if lines:
            await self._response.write("".join(f"{line}\n" for line in lines).encode())

    def _encoded(self, event: WatchEvent) -> Object:
        if event.type == "ERROR" or self._form is Form.OBJECT:
            return event.object
        if self._form is Form.PARTIAL:
            return partial_metadata(event.object)
        meta = {"resourceVersion": event.object["metadata"]["resourceVersion"]}
        if event.type == "BOOKMARK":
            row = {"cells": [""] + [None] * (len(self._kind.columns) - 1), "object": partial_metadata(event.object)}
            return {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "columnDefinitions": None,
                "rows": [row],
            }
        shown = table(self._kind, [event.object], meta, self._include, self._operations.now())
        if self._knows_columns:
            # Only the first table of a stream carries the columns.
            shown["columnDefinitions"] = None
        self._knows_columns = True
        return shown


async def stream(
    request: web.Request,
    operations: Operations,
    place: tuple[Kind, str | None],
    options: WatchOptions,
    representation: Representation,
) -> web.StreamResponse:
    """Answer `request` with the watch of `place` (kind and namespace) until it ends."""
    kind, namespace = place
    include = IncludeObject(request.query.get("includeObject") or IncludeObject.METADATA)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    writer = EventWriter(response, operations, kind, representation.form, include)
    try:
        await _follow(operations, Watch(operations.store, kind, namespace, options), writer, options)
    except StatusError as error:
        await writer.write([WatchEvent("ERROR", error.to_object())])
    except ConnectionResetError:
        return response
    await response.write_eof()
    return response


async def _follow(operations: Operations, watch: Watch, writer: EventWriter, options: WatchOptions) -> None:
    history = operations.store.history
    deadline = time.monotonic() + options.timeout_s
    # The last bookmark comes shortly before the end, so that it still reaches a client that also watches the clock.
    last_bookmark = max(deadline - _LAST_BOOKMARK_S, time.monotonic())
    bookmark_at = min(time.monotonic() + DEV_BOOKMARK_INTERVAL_S, last_bookmark)
    with history.watching(watch.resource) as wake:
        await writer.write(watch.state())
        while True:
            wake.clear()
            await writer.write(watch.pending())
            now = time.monotonic()
            if history.closed or now >= deadline:
                return
            if options.bookmarks and now >= bookmark_at:
                await writer.write([*watch.pending(), watch.bookmark()])
                bookmark_at = deadline if now >= last_bookmark else min(now + DEV_BOOKMARK_INTERVAL_S, last_bookmark)
            until = min(deadline, bookmark_at) if options.bookmarks else deadline
            await _wait(wake, until - time.monotonic())


async def _wait(wake: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            await wake.wait()
    except TimeoutError:
        return
