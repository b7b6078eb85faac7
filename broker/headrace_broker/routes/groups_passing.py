"""Requests about groups that are passed on to the coordinator's broker, and bounded: each holds a stream between two
brokers for as long as its answer takes, and records go by the same connection.

Heartbeats that wait have a bound of their own, so that a thousand members never keep anybody from committing or
leaving. Above it they are answered at once there, and wait here (`core.groups.passing`). One per broker.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from gzip import decompress

from aiohttp import web

from headrace.core.groups.requests import answer_pause_ms, heartbeat_without_waiting
from headrace.core.limits import (
    GROUP_HEARTBEATS_PASSED_ON_MAX,
    GROUP_REQUESTS_PASSED_ON_MAX,
    JSON_INLINE_BYTES_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace_broker.internal_topics.coordinators import CoordinatorElsewhere
from headrace_broker.proxy import Proxy
from headrace_broker.routes.uploads import Chunks


class PassingOn:
    def __init__(self, proxy: Proxy, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._proxy = proxy
        self._sleep = sleep
        self._heartbeats = 0
        """That other brokers have yet to answer, and that may wait there."""
        self._others = 0

    async def heartbeat(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.Response:
        """Raises what `other` raises."""
        if self._heartbeats < GROUP_HEARTBEATS_PASSED_ON_MAX:
            self._heartbeats += 1
            try:
                return await self._proxy.forward(request, target, chunks, PRODUCE_TIMEOUT_MS_DEFAULT)
            finally:
                self._heartbeats -= 1
        is_small = sum(map(len, chunks)) <= JSON_INLINE_BYTES_MAX
        hurried, wait_ms = _hurried(chunks) if is_small else await asyncio.to_thread(_hurried, chunks)
        answer = await self.other(request, target, (hurried,))
        if answer.status == 200:
            await self._sleep(answer_pause_ms(_told(answer), wait_ms) / 1000)
        return answer

    async def other(self, request: web.Request, target: CoordinatorElsewhere, chunks: Chunks) -> web.Response:
        """Raises NotCoordinatorError where the other brokers have as many to answer as may be."""
        if self._others >= GROUP_REQUESTS_PASSED_ON_MAX:
            raise target.error("; ask there: this one passes on as many requests about groups as it may")
        self._others += 1
        try:
            return await self._proxy.forward(request, target, chunks, PRODUCE_TIMEOUT_MS_DEFAULT)
        finally:
            self._others -= 1


def _hurried(chunks: Chunks) -> tuple[bytes, int]:
    whole = b"".join(chunks)
    try:
        body, wait_ms = heartbeat_without_waiting(json.loads(whole))
    except (ValueError, RecursionError):
        return whole, 0  # which says the coordinator
    return json.dumps(body).encode(), wait_ms


def _told(answer: web.Response) -> object:
    assert isinstance(answer.body, bytes), "it was read whole"
    return json.loads(decompress(answer.body) if "Content-Encoding" in answer.headers else answer.body)
