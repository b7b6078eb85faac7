"""The one Kubernetes client of Headrace: list, get, create, replace, patch, delete, on typed resources.

A process has one `KubeClient`, closed at its end; any number of tasks of one event loop may use it. Every request has
a time limit. A read is repeated, twice at most, where the server answers that it cannot just now: one bad answer in
ten must not fail a caller that needs ten of them. A write is sent once. It raises the errors of
`headrace.kube.errors`, also where an object that was asked for by name cannot be read (UnreadableObjectError); a list
leaves such objects out, counts and logs them, so that one bad object does not blind a process to all others.

`Backoff` computes how long a caller waits before it asks again: exponential, with jitter, so that callers do not keep
step.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random, uniform
from typing import Any, Generic, Self, TypeVar

from headrace.core.limits import API_BACKOFF_MIN_MS, API_CONNECT_TIMEOUT_MS, API_REQUEST_TIMEOUT_MS
from headrace.core.resources.metadata import Object
from headrace.http2.aiohttp_library import aiohttp
from headrace.kube.credentials import Credentials, load_credentials
from headrace.kube.errors import ApiBusyError, ApiUnavailableError, KubeConfigError, UnreadableObjectError, error_of
from headrace.kube.resource import ObjectKey, Resource

API_READ_PAUSES_MS = (50, 250)
"""The pauses, more or less, before a read is sent again where the API server answers 429 or 5xx."""
API_LINE_BYTES_MAX = 2 << 20
"""The longest line of a watch: an object has 1.5 MiB at most."""
API_BACKOFF_MAX_MS = 10_000
T = TypeVar("T")
_Query = Sequence[tuple[str, str]]
_log = logging.getLogger(__name__)
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=API_REQUEST_TIMEOUT_MS / 1000, connect=API_CONNECT_TIMEOUT_MS / 1000)


class Backoff:
    """Pauses with full jitter under a ceiling that doubles with each failure, never below the least."""

    def __init__(self, rng: Random, least_ms: int = API_BACKOFF_MIN_MS, most_ms: int = API_BACKOFF_MAX_MS) -> None:
        self._rng = rng
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._ceiling_ms = least_ms

    def next_ms(self) -> float:
        """Return the wait after one more failure."""
        self._ceiling_ms = min(2 * self._ceiling_ms, self._most_ms)
        return self._rng.uniform(self._least_ms, self._ceiling_ms)

    def reset(self) -> None:
        """Start again after a success: the next failure waits briefly."""
        self._ceiling_ms = self._least_ms


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    items: tuple[T, ...]
    resource_version: str
    """The version of the whole list, from which a watch continues."""
    left_out: int = 0
    """The number of objects that cannot be read ..."""
    unreadable: tuple[ObjectKey, ...] = ()
    """... and which they are."""


class KubeClient:
    def __init__(self, credentials: Credentials) -> None:
        """Take the credentials. Raises KubeConfigError for certificates that cannot be read."""
        self.credentials = credentials
        self.namespace = credentials.namespace
        self._tls = credentials.ssl_context()
        self._session: aiohttp.ClientSession | None = None
        """The session, made with the first request, within the event loop that it belongs to."""

    @classmethod
    async def connect(cls, *, kubeconfig: str | None = None, context: str | None = None) -> "KubeClient":
        """Read the credentials; the first request opens the first connection. Raises KubeConfigError."""
        return cls(await load_credentials(kubeconfig, context))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def list(
        self, resource: Resource[T], *, namespace: str | None = None, label_selector: str = "", name: str = ""
    ) -> Listing[T]:
        """Return all objects as they are now (a list without resourceVersion is linearizable); `namespace` None is all.

        With a `name` only that object, where it exists: rights on that one object are then enough.
        """
        query = selection(label_selector, name)
        answer = await self._read(resource.path(namespace), query)
        found = answer.get("items") or ()
        items = [parse_or_log(resource, item) for item in found]
        version = str((answer.get("metadata") or {}).get("resourceVersion", ""))
        readable = tuple(item for item in items if item is not None)
        unreadable = tuple(ObjectKey.of(each) for each, item in zip(found, items, strict=True) if item is None)
        return Listing(readable, version, len(unreadable), unreadable)

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object as it is now: a GET without resourceVersion is linearizable."""
        return _parsed(resource, await self._read(resource.path(namespace, name)))

    async def create(self, resource: Resource[T], obj: Object) -> T:
        """Create one object. Raises AlreadyExistsError."""
        return _parsed(resource, await self._request("POST", resource.path(_namespace_of(obj)), body=obj))

    async def replace(self, resource: Resource[T], obj: Object, *, subresource: str | None = None) -> T:
        """Send a PUT: with `metadata.resourceVersion` it is a compare-and-set. Raises ConflictError, NotFoundError.

        With `status` as subresource only the status is written, and without it everything but the status.
        """
        path = resource.path(_namespace_of(obj), obj["metadata"]["name"], subresource)
        return _parsed(resource, await self._request("PUT", path, body=obj))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None,
        merge_patch: Object,
        *,
        subresource: str | None = None,
    ) -> T:
        """Send a JSON merge patch (RFC 7386); with `metadata.resourceVersion` in it, it is a compare-and-set too."""
        path = resource.path(namespace, name, subresource)
        answer = await self._request("PATCH", path, body=merge_patch, content_type=_MERGE_PATCH)
        return _parsed(resource, answer)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Ask for deletion. Raises NotFoundError, and ConflictError where `uid` or `resource_version` is given and the
        object has another.

        `grace_period_s` is for Pods: 0 states that the Pod's process is gone; only the program that ran it knows that.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        asked = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {name: value for name, value in asked.items() if value is not None}:
            options["preconditions"] = preconditions
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        await self._request("DELETE", resource.path(namespace, name), body=options)

    @asynccontextmanager
    async def stream(
        self, path: str, query: _Query, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an endless GET and yield its response, for `headrace.kube.watch` alone."""
        response = await self._send("GET", path, query=query, timeout=timeout)
        try:
            if response.status != 200:
                raise error_of(response.status, await response.read(), f"GET {path}")
            yield response
        finally:
            # `release` would wait for what is left of an endless answer.
            response.close()

    async def _read(self, path: str, query: _Query = ()) -> dict[str, Any]:
        for pause_ms in API_READ_PAUSES_MS:
            try:
                return await self._request("GET", path, query=query)
            except ApiBusyError as error:
                _log.info("asking again: %s", error)
            await asyncio.sleep(uniform(0.5, 1.5) * pause_ms / 1000)
        return await self._request("GET", path, query=query)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: _Query = (),
        body: Object | None = None,
        content_type: str = _JSON,
    ) -> dict[str, Any]:
        response = await self._send(method, path, query=query, body=body, content_type=content_type)
        try:
            content: bytes = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(method, path, error) from error
        if response.status >= 300:
            raise error_of(response.status, content, f"{method} {path}")
        try:
            answer: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise _unavailable(method, path, error) from error
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: _Query = (),
        body: Object | None = None,
        content_type: str = _JSON,
        timeout: aiohttp.ClientTimeout = _REQUEST_TIMEOUT,
    ) -> aiohttp.ClientResponse:
        # A write must reach the server once: nothing is sent again here, callers decide.
        try:
            return await self._connected().request(
                method,
                self.credentials.server + path,
                params=list(query),
                headers=await self._headers(content_type),
                data=None if body is None else json.dumps(body),
                timeout=timeout,
                proxy=self.credentials.proxy,
                server_hostname=self.credentials.tls_server_name,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(method, path, error) from error

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": _JSON, "Content-Type": content_type, "User-Agent": "headrace"}
        authorization = await self.credentials.authorization()
        if authorization is not None and not self.credentials.keeps_secrets:
            raise KubeConfigError(
                f"kubeconfig: {self.credentials.server} is plain http, over which no token is sent, as anybody on the"
                " way can read it; use https"
            )
        return headers if authorization is None else {**headers, "Authorization": authorization}

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls or False),
                trust_env=self.credentials.takes_proxy_of_environment,
                read_bufsize=API_LINE_BYTES_MAX,
            )
        return self._session


def selection(label_selector: str, name: str) -> list[tuple[str, str]]:
    """Return the part of a query that chooses among the objects of a collection."""
    query = [("labelSelector", label_selector)] if label_selector else []
    return [*query, ("fieldSelector", f"metadata.name={name}")] if name else query


def _parsed(resource: Resource[T], obj: Object) -> T:
    """Return the typed object. Raises UnreadableObjectError."""
    try:
        return resource.parse(obj)
    except ValueError as error:
        metadata: Mapping[str, Any] = obj.get("metadata") or {}
        place = f"{resource.kind} {metadata.get('namespace', '')}/{metadata.get('name', '?')}"
        raise UnreadableObjectError(f"{place} cannot be read, mend it: {error}") from error


def parse_or_log(resource: Resource[T], obj: Object) -> T | None:
    """Return the typed object; None, and a line in the log, where it cannot be read."""
    try:
        return resource.parse(obj)
    except ValueError as error:
        metadata: Mapping[str, Any] = obj.get("metadata") or {}
        _log.warning(
            "left out %s %s/%s: %s", resource.kind, metadata.get("namespace", ""), metadata.get("name", "?"), error
        )
        return None


def _namespace_of(obj: Object) -> str | None:
    namespace: str | None = obj["metadata"].get("namespace")
    return namespace


def _unavailable(method: str, path: str, error: Exception) -> ApiUnavailableError:
    return ApiUnavailableError(
        f"{method} {path}: the Kubernetes API did not answer ({str(error) or type(error).__name__})"
    )
