"""A watch that does not end: what there is, then every change, through lost connections and silent servers.

`Listed` comes first and after every loss (410, an error, silence): it is the whole truth, what is not in it is gone.
`Changed` and `Removed` come in between, in the server's order. A server ends a healthy watch after a while; that is no
loss, the next one goes on from the same place. Each iterator owns one request at a time; close it (`aclosing`), or
cancel the task that iterates it.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeAlias, TypeVar

import aiohttp

from headrace.core.limits import API_CONNECT_TIMEOUT_MS, WATCH_SILENCE_MS_MAX
from headrace.kube.backoff import Backoff
from headrace.kube.client import KubeClient, parse_or_log
from headrace.kube.errors import ApiError, ApiUnavailableError, error_of
from headrace.kube.resource import Resource

T = TypeVar("T")
_log = logging.getLogger(__name__)
# The server ends an idle watch before we would take it for dead.
_SERVER_TIMEOUT_S = WATCH_SILENCE_MS_MAX * 3 // 4 // 1000


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    item: T
    """As it was last."""


WatchEvent: TypeAlias = Listed[T] | Changed[T] | Removed[T]


async def watch(
    client: KubeClient,
    resource: Resource[T],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    rng: Random | None = None,
) -> AsyncGenerator[WatchEvent[T], None]:
    """Follow `resource` for ever; never raises but when it is cancelled. Objects that do not parse are left out."""
    backoff = Backoff(rng or Random())
    follower = _Follower(client, resource, namespace, label_selector)
    while True:
        try:
            listing = await client.list(resource, namespace=namespace, label_selector=label_selector)
            backoff.reset()
            yield Listed(listing.items)
            version = listing.resource_version
            async for event in follower.follow(version):
                yield event
        except ApiError as error:
            wait_ms = backoff.next_ms()
            _log.warning("watch of %s lost, listing again in %.0f ms: %s", resource.plural, wait_ms, error)
            await asyncio.sleep(wait_ms / 1000)


class _Follower(Generic[T]):
    def __init__(self, client: KubeClient, resource: Resource[T], namespace: str | None, label_selector: str) -> None:
        self._client = client
        self._resource = resource
        self._path = resource.path(namespace)
        self._label_selector = label_selector

    async def follow(self, version: str) -> AsyncIterator[Changed[T] | Removed[T]]:
        """Changes after `version`, over as many requests as it takes, until one of them fails."""
        while True:
            async for line in self._lines(version):
                kind, obj = line["type"], line["object"]
                if kind == "ERROR":
                    raise error_of(int(obj.get("code", 500)), json.dumps(obj).encode(), f"watch {self._path}")
                version = str(obj["metadata"]["resourceVersion"])
                if kind == "BOOKMARK":
                    continue
                item = parse_or_log(self._resource, obj)
                if item is not None:
                    yield Removed(item) if kind == "DELETED" else Changed(item)

    async def _lines(self, version: str) -> AsyncIterator[dict[str, Any]]:
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(_SERVER_TIMEOUT_S)),
        ]
        if self._label_selector:
            query.append(("labelSelector", self._label_selector))
        timeout = aiohttp.ClientTimeout(
            total=None, connect=API_CONNECT_TIMEOUT_MS / 1000, sock_read=WATCH_SILENCE_MS_MAX / 1000
        )
        try:
            async with self._client.stream(self._path, query, timeout) as response:
                while line := await response.content.readline():
                    yield json.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            message = f"watch {self._path}: {str(error) or type(error).__name__}"
            raise ApiUnavailableError(message) from error
