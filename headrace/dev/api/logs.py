"""`kubectl logs`: the log file of the process behind a Pod, its end or all of it, and as it grows.

One response per request, until the reader leaves, the Pod is gone or the server stops. Nothing tells this process that
another one has written, so a follower looks again every DEV_LOG_POLL_MS. A Pod whose process was started again shows
all of its lives: the file does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

from headrace.core.limits import DEV_LOG_POLL_MS
from headrace.dev.api.builtin import PODS
from headrace.dev.api.log_lines import Shown, check_container, read_log_options
from headrace.dev.api.log_tail import Tail
from headrace.dev.api.objects import Key, Object
from headrace.dev.api.operations import Operations
from headrace.dev.api.status import method_not_allowed, not_found
from headrace.http2.aiohttp_web import web

ORDINAL = "{ordinal}"
"""Stands for a Pod's number in the name of its log file."""
_ORDINAL_LABEL = "apps.kubernetes.io/pod-index"


class PodLogs:
    def __init__(self, operations: Operations, pattern: Path | None) -> None:
        """`pattern` is where the Pods of the StatefulSet log to, with ORDINAL in it; None: nothing runs here."""
        self._operations = operations
        self._pattern = pattern

    def add_to(self, app: web.Application) -> None:
        """Before the routes of the resources, whose paths look alike."""
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/pods/{name}/log", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            raise method_not_allowed()
        store = self._operations.store
        key = Key(PODS, request.match_info["namespace"], request.match_info["name"])
        options = read_log_options(request.query, key.name, self._operations.now())
        pod = store.get(key)
        if pod is None:
            raise not_found(PODS, key.name)
        check_container(pod, options)
        path = self._path(pod)
        if path is None:
            return web.Response(status=204)

        def is_over() -> bool:
            current = store.get(key)
            gone = current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]
            return store.history.closed or gone or not options.follow

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with closing(Tail(path, options.tail_lines)) as tail:
            shown = Shown(options)
            async for lines in _pieces(tail, is_over):
                await response.write(shown.of(lines))
                if shown.is_full:
                    break
        await response.write_eof()
        return response

    def _path(self, pod: Object) -> Path | None:
        """None where nothing runs yet. Raises StatusError 404 for a Pod on a node that is not there."""
        if "nodeName" not in pod["spec"]:
            return None
        ordinal = pod["metadata"].get("labels", {}).get(_ORDINAL_LABEL, "")
        if self._pattern is None or not ordinal.isdecimal():
            raise not_found(PODS, pod["spec"]["nodeName"])
        return self._pattern.with_name(self._pattern.name.replace(ORDINAL, ordinal))


async def _pieces(tail: Tail, is_over: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    """Lines as they come, until `is_over`."""
    while True:
        for lines in tail.new_lines():
            yield lines
        if is_over():
            yield [tail.take_rest()]
            return
        await asyncio.sleep(DEV_LOG_POLL_MS / 1000)
