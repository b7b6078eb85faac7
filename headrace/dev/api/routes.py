"""The HTTP shell: methods and paths to operations, bodies and headers to options, results to answers.

One handler serves every resource, because the set of resources changes while the server runs. The module decides
nothing about objects: that is `operations`.

A watch is one chunked response, a line of JSON for each event. It lasts until the client leaves, `timeoutSeconds` are
over, the history is lost (410, as an ERROR event) or the server stops. It waits for the history's wake-up, never polls,
and holds no queue: events that a slow client has not read yet stay in the history, within its bound.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import yaml

from headrace.core.browsers import is_loopback_name, why_foreign, why_not_here
from headrace.core.limits import DEV_REQUEST_BODY_BYTES_MAX
from headrace.dev.api import discovery, openapi
from headrace.dev.api.builtin import PODS
from headrace.dev.api.documents import Document, decode, decode_apply, decode_patch
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.listing import ListPage
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.operations import Operations, RequestTarget
from headrace.dev.api.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from headrace.dev.api.pods import ATTACHING, refuse_to_attach
from headrace.dev.api.requests import (
    Address,
    Form,
    Representation,
    is_watch,
    negotiate,
    parse_address,
    read_delete_options,
    read_list_options,
    read_selection,
    read_watch_options,
    read_write_options,
)
from headrace.dev.api.status import StatusError, bad_request, method_not_allowed, unsupported_media_type
from headrace.dev.api.store import Watch, WatchEvent
from headrace.dev.api.strategy import ApiWriteOptions, WriteResult
from headrace.dev.api.tables import IncludeObject, partial_metadata, table
from headrace.http2.aiohttp_web import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

DEV_BOOKMARK_INTERVAL_S = 30


_LAST_BOOKMARK_S = 1.0
"""The time before its end at which a watch that ends by its timeout sends its last bookmark, for a client that also
watches the clock."""
_Answer = Awaitable[web.StreamResponse]
_NO_PAGE = "404 page not found\n"


class EventEncoder:
    """An encoder of events in the form that the client asked for."""

    def __init__(self, kind: ResourceKind, form: Form, include: IncludeObject, now: Callable[[], datetime]) -> None:
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
    """Answer `request` with the events of `watch`, until it ends."""
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
            # The last bookmark comes even where it is late for the end.
            if bookmark_at <= now and bookmark_at < deadline:
                await send([*watch.pending(), watch.bookmark()])
                bookmark_at = _next_bookmark(now, deadline)
            if now >= deadline:
                return
            await _wait(wake, min(deadline, bookmark_at) - time.monotonic())


def _next_bookmark(now: float, deadline: float) -> float:
    """Return the time of the next bookmark: after an interval, or shortly before the end; with the end so near,
    none."""
    last = deadline - _LAST_BOOKMARK_S
    return min(now + DEV_BOOKMARK_INTERVAL_S, last) if now < last else deadline


async def _wait(wake: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            await wake.wait()
    except TimeoutError:
        return


class ApiRoutes:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._of_collection: dict[str, Callable[[web.Request, ResourceKind, Address], _Answer]] = {
            "GET": self._list_or_watch,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._of_object: dict[str, Callable[[web.Request, RequestTarget], _Answer]] = {
            "GET": self._get,
            "PUT": self._replace,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api", self._core_versions)
        app.router.add_get("/apis", self._groups)
        app.router.add_get("/apis/{group}", self._group)
        app.router.add_get("/api/{version}", self._resources)
        app.router.add_get("/apis/{group}/{version}", self._resources)
        app.router.add_get("/openapi/v2", self._openapi_v2)
        app.router.add_get("/openapi/v3", self._openapi_index)
        app.router.add_get("/openapi/v3/api/{version}", self._openapi)
        app.router.add_get("/openapi/v3/apis/{group}/{version}", self._openapi)
        app.router.add_route("*", "/{path:(api|apis)/.*}", self._resource)

    async def _core_versions(self, request: web.Request) -> web.Response:
        if _representation(request).form is Form.DISCOVERY:
            return _answer(request, discovery.aggregated(self._operations.catalog, core=True))
        return _answer(request, discovery.core_versions())

    async def _groups(self, request: web.Request) -> web.Response:
        if _representation(request).form is Form.DISCOVERY:
            return _answer(request, discovery.aggregated(self._operations.catalog, core=False))
        return _answer(request, discovery.group_list(self._operations.catalog))

    async def _group(self, request: web.Request) -> web.Response:
        found = discovery.group(self._operations.catalog, request.match_info["group"])
        return _answer(request, found) if found is not None else _no_page()

    async def _resources(self, request: web.Request) -> web.Response:
        group = request.match_info.get("group", "")
        found = discovery.resource_list(self._operations.catalog, group, request.match_info["version"])
        return _answer(request, found) if found is not None else _no_page()

    async def _openapi_v2(self, request: web.Request) -> web.Response:
        return web.Response(body=openapi.V2_DOCUMENT, headers={"Content-Type": openapi.V2_MEDIA_TYPE})

    async def _openapi_index(self, request: web.Request) -> web.Response:
        return web.json_response(openapi.index(self._operations.catalog), dumps=to_json)

    async def _openapi(self, request: web.Request) -> web.Response:
        group = request.match_info.get("group", "")
        found = openapi.document(self._operations.catalog, group, request.match_info["version"])
        return web.json_response(found, dumps=to_json) if found is not None else _no_page()

    async def _resource(self, request: web.Request) -> web.StreamResponse:
        address = parse_address(request.path)
        kind = self._operations.catalog.find(address.group, address.version, address.plural) if address else None
        if address is None or kind is None or (address.namespace is not None and not kind.namespaced):
            return _no_page()
        if not address.name:
            if request.method == "PUT":
                raise bad_request("name must be provided")
            if kind.namespaced and address.namespace is None and request.method != "GET":
                # A request over all namespaces can only read.
                if kind.schema is not None:
                    return _no_page()
                raise method_not_allowed()
            answer = self._of_collection.get(request.method)
            if answer is None:
                raise method_not_allowed()
            return await answer(request, kind, address)
        if kind.resource == PODS and address.subresource in ATTACHING:
            pod = self._operations.get(RequestTarget(kind, address.namespace or "", address.name))
            raise refuse_to_attach(pod, address.subresource)
        answer_object = self._of_object.get(request.method)
        if answer_object is None:
            raise method_not_allowed()
        return await answer_object(
            request, RequestTarget(kind, address.namespace or "", address.name, address.subresource)
        )

    async def _list_or_watch(self, request: web.Request, kind: ResourceKind, address: Address) -> web.StreamResponse:
        representation = _representation(request)
        if is_watch(request.query):
            options = read_watch_options(request.query, kind)
            watch = Watch(self._operations.store, kind, address.namespace, options)
            encoder = EventEncoder(kind, representation.form, _include(request), self._operations.now)
            return await stream(request, watch, encoder)
        listing = self._operations.list(kind, address.namespace, read_list_options(request.query, kind))
        return _answer(request, self._shown_list(request, kind, listing, representation.form))

    async def _create(self, request: web.Request, kind: ResourceKind, address: Address) -> web.Response:
        options = _write_options(request, "CreateOptions")
        document = await _read(request, kind)
        return self._written(request, kind, self._operations.create(kind, address.namespace or "", document, options))

    async def _delete_collection(self, request: web.Request, kind: ResourceKind, address: Address) -> web.Response:
        selection = read_selection(request.query, kind)
        options = read_delete_options(request.query, await _read_optional(request))
        listing = self._operations.delete_collection(kind, address.namespace, selection, options)
        return _answer(request, self._shown_list(request, kind, listing, Form.OBJECT))

    async def _get(self, request: web.Request, target: RequestTarget) -> web.Response:
        obj = self._operations.get(target)
        return _answer(request, self._shown(request, target.kind, obj))

    async def _replace(self, request: web.Request, target: RequestTarget) -> web.Response:
        options = _write_options(request, "UpdateOptions")
        document = await _read(request, target.kind)
        return self._written(request, target.kind, self._operations.replace(target, document, options))

    async def _patch(self, request: web.Request, target: RequestTarget) -> web.Response:
        media_type = request.content_type
        if media_type == APPLY:
            options = _write_options(request, "PatchOptions", applies=True)
            document = decode_apply(await request.read())
            return self._written(request, target.kind, self._operations.apply(target, document, options))
        options = _write_options(request, "PatchOptions")
        accepted = [JSON_PATCH, MERGE] if target.kind.schema is not None else [JSON_PATCH, MERGE, STRATEGIC]
        if media_type not in accepted:
            raise unsupported_media_type([*accepted, APPLY])
        document = decode_patch(await request.read())
        return self._written(request, target.kind, self._operations.patch(target, media_type, document, options))

    async def _delete(self, request: web.Request, target: RequestTarget) -> web.Response:
        options = read_delete_options(request.query, await _read_optional(request))
        return _answer(request, self._operations.delete(target, options))

    def _written(self, request: web.Request, kind: ResourceKind, written: WriteResult) -> web.Response:
        response = _answer(request, self._shown(request, kind, written.object), 201 if written.created else 200)
        for warning in written.warnings:
            response.headers.add("Warning", f"299 - {to_json(warning)}")
        return response

    def _shown(self, request: web.Request, kind: ResourceKind, obj: Object) -> Object:
        """Return one object in the form that the client reads; a Scale or a Status is always itself."""
        form = _representation(request).form
        if form is Form.OBJECT or obj["kind"] != kind.kind:
            return obj
        if form is Form.PARTIAL:
            return partial_metadata(obj)
        meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return table(kind, [obj], meta, _include(request), self._operations.now())

    def _shown_list(self, request: web.Request, kind: ResourceKind, listing: ListPage, form: Form) -> Object:
        meta: Object = {"resourceVersion": str(listing.revision)}
        if listing.rest:
            meta |= {"continue": listing.rest, "remainingItemCount": listing.remaining}
        if form is Form.TABLE:
            return table(kind, listing.objects, meta, _include(request), self._operations.now())
        if form is Form.PARTIAL:
            items = [partial_metadata(obj) for obj in listing.objects]
            return {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "items": items,
            }
        return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta, "items": listing.objects}


def programs_of_this_machine(listening: str) -> "Middleware":
    """Return a middleware that refuses requests that web pages have a browser send. `listening`: the address of the
    server.

    Where that is of loopback, a page whose own name leads there is refused, too.
    """
    is_private = is_loopback_name(listening)

    @web.middleware
    async def middleware(request: web.Request, handler: "Handler") -> web.StreamResponse:
        headers = request.headers
        host = headers.get("Host", "")
        why = why_not_here(host) if is_private else None
        why = why or why_foreign(host, headers.get("Origin"), headers.get("Sec-Fetch-Site"))
        if why is not None:
            raise StatusError(403, "Forbidden", why)
        return await handler(request)

    return middleware


@web.middleware
async def refusals(request: web.Request, handler: "Handler") -> web.StreamResponse:
    """Turn every refusal into a Status object."""
    try:
        return await handler(request)
    except StatusError as error:
        return _refusal(error)
    except web.HTTPRequestEntityTooLarge:
        message = f"Request entity too large: limit is {DEV_REQUEST_BODY_BYTES_MAX}"
        return _refusal(StatusError(413, "RequestEntityTooLarge", message))
    except sqlite3.Error as error:
        return _refusal(StatusError(500, "InternalError", f"Internal error occurred: cannot write the state: {error}"))
    except web.HTTPNotFound:
        return _no_page()
    except web.HTTPMethodNotAllowed:
        return _refusal(method_not_allowed())


def _refusal(error: StatusError) -> web.Response:
    return web.json_response(error.to_object(), status=error.code, dumps=to_json)


def _representation(request: web.Request) -> Representation:
    return negotiate(request.headers.get("Accept", ""))


def _include(request: web.Request) -> IncludeObject:
    asked = request.query.get("includeObject") or IncludeObject.METADATA
    try:
        return IncludeObject(asked)
    except ValueError as error:
        raise bad_request(f"unrecognized includeObject value: {asked!r}") from error


def _answer(request: web.Request, document: Object, status: int = 200) -> web.Response:
    representation = _representation(request)
    if representation.as_yaml:
        text = yaml.safe_dump(document, default_flow_style=False, allow_unicode=True)
    else:
        text = to_json(document) + "\n"
    return web.Response(body=text.encode(), status=status, headers={"Content-Type": representation.media_type})


def _write_options(request: web.Request, options_kind: str, *, applies: bool = False) -> ApiWriteOptions:
    return read_write_options(request.query, options_kind, request.headers.get("User-Agent", ""), applies=applies)


async def _read(request: web.Request, kind: ResourceKind) -> Document:
    return decode(await request.read(), request.content_type, kind.kind)


async def _read_optional(request: web.Request) -> Document | None:
    body = await request.read()
    return decode(body, request.content_type) if body else None


def _no_page() -> web.Response:
    return web.Response(text=_NO_PAGE, status=404)
