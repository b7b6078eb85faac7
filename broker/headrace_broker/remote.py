"""Requests of this broker's own to the leaders of partitions that it does not lead: what each takes, and what it says.

Raises what the leader answers with, as the client of that leader would get it, and NotLeaderError where it cannot be
reached.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from headrace.core.errors import from_problem
from headrace.core.limits import DELETE_TIMEOUT_MS, PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.log.epochs import Fence
from headrace.core.types import Offset
from headrace_broker.proxy import NO_CLIENT, PROXIED_HEADER, Elsewhere, Proxy
from headrace_broker.requests import Edge, ProduceQuery
from headrace_broker.routes.record_bodies import BodyFormat

_BATCHES = BodyFormat.BATCHES.value


async def produce_there(
    proxy: Proxy, target: Elsewhere, query: ProduceQuery, body: Sequence[bytes | memoryview], client: str = NO_CLIENT
) -> Offset:
    """Offset of the first record of these batches. `client`: the address of whoever they are of."""
    asked = {"acks": query.acks.value, "timeoutMs": query.timeout_ms, **_fenced(query.fence)}
    if query.is_committed:
        asked["committed"] = "true"
    headers = {"content-type": _BATCHES, PROXIED_HEADER.lower(): client}
    path = _path(target, "records", asked)
    answer = await proxy.send(target, "POST", path, headers=headers, body=body, timeout_ms=query.timeout_ms)
    return Offset(_document(answer).get("baseOffset", 0))


async def fetch_there(proxy: Proxy, target: Elsewhere, offset: Offset, max_bytes: int, fence: Fence) -> memoryview:
    """Whole batches, from that which `offset` is in."""
    path = _path(target, "records", {"offset": offset, "maxBytes": max_bytes, **_fenced(fence)})
    headers = {"accept": _BATCHES}
    answer = await proxy.send(target, "GET", path, headers=headers, body=(), timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT)
    if answer.status >= 300:
        _document(answer)
    assert isinstance(answer.body, bytes), "it was read whole"
    return memoryview(answer.body)


async def edge_there(proxy: Proxy, target: Elsewhere, edge: Edge, fence: Fence) -> Offset:
    """Where what can be read begins, or ends."""
    path = _path(target, "offsets", {"timestamp": edge.value, **_fenced(fence)})
    answer = await proxy.send(target, "GET", path, headers={}, body=(), timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT)
    return Offset(_document(answer)["offset"])


async def delete_there(proxy: Proxy, target: Elsewhere, before: Offset, fence: Fence) -> None:
    path = _path(target, "records", {"beforeOffset": before, **_fenced(fence)})
    _document(await proxy.send(target, "DELETE", path, headers={}, body=(), timeout_ms=DELETE_TIMEOUT_MS))


def _fenced(fence: Fence) -> dict[str, str]:
    return {} if fence.topic_uid is None else {"topicUid": fence.topic_uid}


def _path(target: Elsewhere, resource: str, query: Mapping[str, str | int]) -> str:
    namespace, topic = (quote(part, safe="") for part in target.place.topic)
    base = f"/v1/namespaces/{namespace}/topics/{topic}/partitions/{target.place.partition}"
    return f"{base}/{resource}?{urlencode(query)}"


def _document(answer: web.Response) -> dict[str, Any]:
    """Raises the error that a problem document names."""
    document: dict[str, Any] = json.loads(answer.text or "{}")
    if answer.status >= 300:
        raise from_problem(document, answer.status)
    return document
