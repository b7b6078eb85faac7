"""The proxy to Services and Pods: `/api/v1/namespaces/{ns}/services/{name}/proxy/...`, any method, both ways streamed.

The module owns one HTTP/1.1 client for as long as the server runs. Bytes pass as they come, in neither direction more
of them than the other side takes; nothing is read into memory, decompressed or limited in time. The side that leaves
first ends the request for both: an answer that breaks off behind the proxy breaks off before it.

A Service's endpoints are the Pods that it selects; each port by name is looked up in every Pod, because brokers on one
machine listen on different ones. The proxy connects to ports of Pods on this machine alone: any client that may write a
Pod may write any address and port into it. Where no endpoint can be reached the answer is a kube-apiserver's.
"""

import ipaddress
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlsplit

from multidict import CIMultiDict
from yarl import URL

from headrace.core.limits import API_CONNECT_TIMEOUT_MS
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.operations import Operations, RequestTarget
from headrace.dev.api.status import StatusError, bad_request, method_not_allowed, not_found
from headrace.http2.aiohttp_library import aiohttp
from headrace.http2.aiohttp_web import web
from headrace.http2.bridge import break_off

DEV_PROXY_CONNECTIONS_MAX = 512
"""The number of requests that pass through the embedded API's proxy at once; others wait for one of them to end."""


_SCHEMES = frozenset({"http", "https", ""})
_SERVICES = GroupResource("", "services")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS = frozenset({"authorization"})
"""The headers that are not passed on: the login to the Kubernetes API is not for the program behind it."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORT_MAX = 65_535
ANY_PORT = range(_PORT_MAX + 1)
_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=API_CONNECT_TIMEOUT_MS / 1000)
_AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""The headers that the client would add to a request that lacks them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The `[scheme:]name[:port]` of a path."""

    text: str
    scheme: str
    name: str
    port: str
    """The port: a number, a name, or empty."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    scheme: str
    host: str
    port: int


def parse_asked(text: str, what: str) -> Asked:
    """Parse the name in a path. Raises StatusError 400. `what` is `service` or `pod`, for the message."""
    parts = text.split(":")
    match parts:
        case [name]:
            asked = Asked(text, "", name, "")
        case [name, port]:
            asked = Asked(text, "", name, port)
        case [scheme, name, port]:
            asked = Asked(text, scheme, name, port)
        case _:
            asked = Asked(text, "", "", "")
    if not asked.name or asked.scheme not in _SCHEMES:
        raise bad_request(f'invalid {what} request "{text}"')
    return asked


def endpoint_of_service(asked: Asked, service: Object, pods: Iterable[Object], random: Random) -> Endpoint:
    """Return any Pod that is ready. Raises StatusError 404, 503."""
    spec = service["spec"]
    port_name = _port_name(asked, spec)
    if not spec.get("selector"):
        raise not_found(_SERVICES, asked.name)
    selected = [pod for pod in pods if _is_selected(pod, spec["selector"])]
    if not selected:
        raise _unavailable(f'no endpoints available for service "{asked.name}"')
    found = [
        Endpoint(asked.scheme or "http", pod["status"]["podIP"], number)
        for pod in selected
        if _is_ready(pod)
        for number in _numbers(pod, spec, port_name)
    ]
    if not found:
        raise _unavailable(f'no endpoints available for service "{asked.text}"')
    return random.choice(found)


def endpoint_of_pod(asked: Asked, pod: Object) -> Endpoint:
    """Return the Pod, ready or not; without a port the first that a container names. Raises StatusError 400."""
    address = pod.get("status", {}).get("podIP", "")
    if not _is_here(address):
        raise bad_request("address not allowed")
    port: Any = asked.port or next(_container_ports(pod), {}).get("containerPort", 80)
    if not str(port).isdecimal():
        port = next((p["containerPort"] for p in _container_ports(pod) if p.get("name") == port), None)
        if port is None:
            raise bad_request(f'pod "{asked.name}" has no port "{asked.port}"')
    return Endpoint(asked.scheme or "http", address, int(port))


def _port_name(asked: Asked, spec: Object) -> str:
    """Return the port's name: a number stands for its name; the only port may have none."""
    if not asked.port.isdecimal():
        return asked.port
    number = int(asked.port)
    for port in spec.get("ports", ()):
        if port["port"] == number:
            return str(port.get("name", ""))
    raise _unavailable(f'no service port {number} found for service "{asked.name}"')


def _is_selected(pod: Object, selector: dict[str, str]) -> bool:
    """Return whether the Pod is selected and lives: a Pod that stops is no endpoint any more."""
    labels = pod["metadata"].get("labels", {})
    chosen = all(labels.get(name) == value for name, value in selector.items())
    return chosen and "deletionTimestamp" not in pod["metadata"] and _is_here(pod.get("status", {}).get("podIP", ""))


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _numbers(pod: Object, spec: Object, port_name: str) -> Iterator[int]:
    """Yield the Pod's port for the Service's port of that name, if it has it."""
    for port in spec.get("ports", ()):
        if port.get("name", "") != port_name:
            continue
        target = port["targetPort"]
        if isinstance(target, int):
            yield target
        else:
            yield from (p["containerPort"] for p in _container_ports(pod) if p.get("name") == target)


def _container_ports(pod: Object) -> Iterator[Object]:
    for container in pod["spec"].get("containers", ()):
        yield from container.get("ports") or ()


def _is_here(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)


_PLURAL_AT, _PATH_PARTS = 5, 8


class ServiceProxy:
    def __init__(self, operations: Operations, pod_ports: range = ANY_PORT) -> None:
        self._operations = operations
        self._pod_ports = pod_ports
        self._random = Random()
        self._client: aiohttp.ClientSession | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the routes; must come before the routes of the resources, whose paths look alike."""
        for plural in ("services", "pods"):
            path = f"/api/v1/namespaces/{{namespace}}/{plural}/{{name}}/proxy"
            app.router.add_route("*", path + "{below:(/.*)?}", self._handle)
        app.cleanup_ctx.append(self._connected)

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=DEV_PROXY_CONNECTIONS_MAX)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=_TIMEOUT,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC,
        ) as self._client:
            yield

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method not in _METHODS:
            raise method_not_allowed()
        # The parts are "", api, v1, namespaces, a name (which may be `proxy`), services or pods, a name, proxy, and
        # what is below.
        parts = request.path.split("/")
        base, below = "/".join(parts[:_PATH_PARTS]), "".join(f"/{part}" for part in parts[_PATH_PARTS:])
        if ".." in parts:
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        endpoint = self._endpoint(parts[_PLURAL_AT], request.match_info["namespace"], request.match_info["name"])
        if endpoint.port <= _PORT_MAX and endpoint.port not in self._pod_ports:
            raise bad_request("address not allowed")
        if not below and request.method in ("GET", "HEAD"):
            # Relative links in the answer would lead elsewhere.
            location = str(request.rel_url.with_path(f"{request.path}/", keep_query=True))
            return web.Response(status=301, headers={"Location": location})
        async with self._asked(request, endpoint, below or "/") as answer:
            return await _pass_on(request, answer, base)

    def _endpoint(self, plural: str, namespace: str, text: str) -> Endpoint:
        asked = parse_asked(text, plural.removesuffix("s"))
        if plural == "pods":
            return endpoint_of_pod(asked, self._get("Pod", namespace, asked.name))
        service = self._get("Service", namespace, asked.name)
        pods = self._operations.store.list(self._kind("Pod").storage, namespace)
        return endpoint_of_service(asked, service, pods, self._random)

    def _get(self, kind: str, namespace: str, name: str) -> Object:
        return self._operations.get(RequestTarget(self._kind(kind), namespace, name))

    def _kind(self, name: str) -> ResourceKind:
        kind = self._operations.catalog.of_kind("v1", name)
        assert kind is not None, "built-in kinds are always served"
        return kind

    @asynccontextmanager
    async def _asked(
        self, request: web.Request, endpoint: Endpoint, path: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the request and yield the answer. Raises StatusError 503 where no answer begins."""
        assert self._client is not None, "the application has started"
        try:
            answer = await self._client.request(
                request.method,
                _url(endpoint, path, request.rel_url.raw_query_string),
                headers=_request_headers(request),
                data=_body(request) if request.can_read_body else None,
                allow_redirects=False,
                ssl=False,  # A kube-apiserver does not check the certificate either.
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StatusError(
                503, "ServiceUnavailable", f"error trying to reach service: {_reason(error, endpoint)}"
            ) from error
        async with answer:
            yield answer


def _url(endpoint: Endpoint, path: str, query: str) -> URL:
    """Return the URL. Raises StatusError 503 for an impossible port."""
    if endpoint.port > _PORT_MAX:
        why = f"dial tcp: address {endpoint.port}: invalid port"
        raise StatusError(503, "ServiceUnavailable", f"error trying to reach service: {why}")
    return URL.build(
        scheme=endpoint.scheme,
        host=endpoint.host,
        port=endpoint.port,
        path=quote(path, safe=_SAFE_IN_PATH),
        query_string=query,
        encoded=True,
    )


def _reason(error: Exception, endpoint: Endpoint) -> str:
    """Return the reason in Go's words, where it is the usual one."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno is not None:
        why = os.strerror(error.os_error.errno).lower()
        return f"dial tcp {endpoint.host}:{endpoint.port}: connect: {why}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    while chunk := await request.content.readany():
        yield chunk


def _request_headers(request: web.Request) -> "CIMultiDict[str]":
    headers = _kept(request.headers.items(), request.headers.getall("Connection", []), _OURS)
    headers["X-Forwarded-Uri"] = request.path
    if request.remote:
        headers["X-Forwarded-For"] = ", ".join([*headers.getall("X-Forwarded-For", []), request.remote])
    return headers


def _kept(
    headers: Iterable[tuple[str, str]], named: Iterable[str], also: frozenset[str] = frozenset()
) -> "CIMultiDict[str]":
    """Return the headers that are not about one connection alone."""
    dropped = _HOP_BY_HOP | also | {name.strip().lower() for value in named for name in value.split(",")}
    return CIMultiDict((name, value) for name, value in headers if name.lower() not in dropped)


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse, base: str) -> web.StreamResponse:
    headers = _kept(answer.headers.items(), answer.headers.getall("Connection", []))
    if answer.status in _REDIRECTS and "Location" in headers:
        headers["Location"] = _location(headers["Location"], base)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientError:
        break_off(request)
    else:
        await response.write_eof()
    return response


def _location(location: str, base: str) -> str:
    """Return a path on the same server as one that leads through the proxy again."""
    return location if urlsplit(location).netloc or not location.startswith("/") else base + location
