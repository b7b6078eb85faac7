"""An endless watch: the objects that are there, then every change, through lost connections and silent servers.

`Listed` comes first and after every loss (410, an error, silence): it has all objects; one that is not in it is gone.
`Changed` and `Removed` come in between, in the server's order. An object that cannot be read is there all the same:
`Listed` names it, `Unreadable` reports that it has become unreadable. A server ends a healthy watch after a while; that
is no loss, the next one goes on from the same place. Each iterator owns one request at a time; close it (`aclosing`),
or cancel the task that iterates it.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeAlias, TypeVar

from headrace.core.limits import API_BACKOFF_MIN_MS, API_CONNECT_TIMEOUT_MS, WATCH_SILENCE_MS_MAX
from headrace.core.resources.metadata import Object
from headrace.http2.aiohttp_library import aiohttp
from headrace.kube.client import Backoff, KubeClient, parse_or_log, selection
from headrace.kube.errors import ApiError, ApiUnavailableError, error_of
from headrace.kube.resource import ObjectKey, Resource

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    items: tuple[T, ...]
    unreadable: tuple[ObjectKey, ...] = ()
    """The keys of unreadable objects that are there beside these."""


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    item: T
    """The object as it was last."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    key: ObjectKey
    is_gone: bool = False
    """True where it is deleted now."""


WatchEvent: TypeAlias = Listed[T] | Changed[T] | Removed[T] | Unreadable


def watch(
    client: KubeClient,
    resource: Resource[T],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    rng: Random | None = None,
    silence_ms_max: int = WATCH_SILENCE_MS_MAX,
) -> AsyncGenerator[WatchEvent[T], None]:
    """Follow `resource` without end; never raises but when it is cancelled."""
    return _Follower(client, resource, namespace, label_selector, "", silence_ms_max, Backoff(rng or Random())).events()


def watch_one(
    client: KubeClient, resource: Resource[T], name: str, namespace: str
) -> AsyncGenerator[WatchEvent[T], None]:
    """Follow the object of this name alone: `Listed` holds it or nothing."""
    return _Follower(client, resource, namespace, "", name, WATCH_SILENCE_MS_MAX, Backoff(Random())).events()


@dataclass(frozen=True, slots=True)
class _Follower(Generic[T]):
    client: KubeClient
    resource: Resource[T]
    namespace: str | None
    label_selector: str
    name: str
    """The name of the one object to follow; empty for all."""
    silence_ms_max: int
    backoff: Backoff

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)

    async def events(self) -> AsyncGenerator[WatchEvent[T], None]:
        while True:
            try:
                listing = await self.client.list(
                    self.resource, namespace=self.namespace, label_selector=self.label_selector, name=self.name
                )
                yield Listed(listing.items, listing.unreadable)
                async with aclosing(self.follow(listing.resource_version)) as changes:
                    async for change in changes:
                        yield change
            except ApiError as error:
                wait_ms = self.backoff.next_ms()
                _log.warning("watch of %s lost, listing again in %.0f ms: %s", self.resource.plural, wait_ms, error)
                await asyncio.sleep(wait_ms / 1000)

    async def follow(self, version: str) -> AsyncGenerator[Changed[T] | Removed[T] | Unreadable, None]:
        """Yield the changes after `version`, over as many requests as it takes, until one of them fails. Raises
        ApiError."""
        while True:
            async with aclosing(self._lines(version)) as lines:
                async for line in lines:
                    kind, obj, version = _parse_event(line, self.path)
                    if kind != "BOOKMARK":
                        yield self._change(obj, is_gone=kind == "DELETED")
            # A server that ends every watch at once must not be asked in a tight loop.
            await asyncio.sleep(API_BACKOFF_MIN_MS / 1000)

    def _change(self, obj: Object, *, is_gone: bool) -> Changed[T] | Removed[T] | Unreadable:
        item = parse_or_log(self.resource, obj)
        if item is None:
            return Unreadable(ObjectKey.of(obj), is_gone)
        return Removed(item) if is_gone else Changed(item)

    async def _lines(self, version: str) -> AsyncGenerator[Any, None]:
        timeout = aiohttp.ClientTimeout(
            total=None, connect=API_CONNECT_TIMEOUT_MS / 1000, sock_read=self.silence_ms_max / 1000
        )
        try:
            async with self.client.stream(self.path, self._query(version), timeout) as response:
                self.backoff.reset()
                while line := await response.content.readline():
                    yield json.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            message = f"watch {self.path}: {str(error) or type(error).__name__}"
            raise ApiUnavailableError(message) from error

    def _query(self, version: str) -> list[tuple[str, str]]:
        return [
            *selection(self.label_selector, self.name),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            # The server ends an idle watch before we would take it for dead. The parameter takes whole seconds only.
            ("timeoutSeconds", str(max(1, self.silence_ms_max * 3 // 4000))),
        ]


def _parse_event(line: Any, path: str) -> tuple[str, Object, str]:
    """Return type, object and resourceVersion. Raises the error that an ERROR event carries, ApiUnavailableError for a
    line that is no event."""
    try:
        kind, obj = str(line["type"]), line["object"]
        if kind == "ERROR":
            raise error_of(int(obj.get("code", 500)), json.dumps(obj).encode(), f"watch {path}")
        return kind, obj, str(obj["metadata"]["resourceVersion"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # A proxy between us and the API server may answer in its stead.
        raise ApiUnavailableError(f"watch {path}: a line is no watch event: {error!r}") from error
