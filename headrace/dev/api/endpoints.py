"""Which process answers for a Service or a Pod: what controllers of Endpoints and the proxy of a kube-apiserver decide.

Pure. A Service's endpoints are the Pods that it selects; each port by name is looked up in every Pod, because brokers
on one machine listen on different ones. Only addresses of this machine are ever connected to. The refusals are a
kube-apiserver's own. Called by `proxy`.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from headrace.core.slotted import dataclass
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import StatusError, bad_request, not_found

_SCHEMES = frozenset({"http", "https", ""})
_SERVICES = GroupResource("", "services")


@dataclass(frozen=True, slots=True)
class Asked:
    """`[scheme:]name[:port]`, as it stands in the path."""

    text: str
    scheme: str
    name: str
    port: str
    """A number, a name, or empty."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    scheme: str
    host: str
    port: int


def parse_asked(text: str, what: str) -> Asked:
    """Raises StatusError 400. `what` is `service` or `pod`, for the message."""
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
    """Any Pod that is ready. Raises StatusError 404, 503."""
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
    """Ready or not; without a port the first that a container names. Raises StatusError 400."""
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
    """A port by number stands for its name; the only port may have none."""
    if not asked.port.isdecimal():
        return asked.port
    number = int(asked.port)
    for port in spec.get("ports", ()):
        if port["port"] == number:
            return str(port.get("name", ""))
    raise _unavailable(f'no service port {number} found for service "{asked.name}"')


def _is_selected(pod: Object, selector: dict[str, str]) -> bool:
    """And lives: a Pod that stops is no endpoint any more."""
    labels = pod["metadata"].get("labels", {})
    chosen = all(labels.get(name) == value for name, value in selector.items())
    return chosen and "deletionTimestamp" not in pod["metadata"] and _is_here(pod.get("status", {}).get("podIP", ""))


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _numbers(pod: Object, spec: Object, port_name: str) -> Iterator[int]:
    """The Pod's port for the Service's port of that name, if it has it."""
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
