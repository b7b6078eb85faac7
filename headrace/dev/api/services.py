"""Services: a selector of Pods, and ports by name. Pure.

Services are checked and completed as by a kube-apiserver, but for addresses: there are no virtual ones on one machine,
so every Service is headless unless its writer names an address, and no port of a node is ever given out. `proxy`
decides who answers for a Service.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from headrace.dev.api.kinds import ResourceKind, TableColumn
from headrace.dev.api.object_meta import label_errors
from headrace.dev.api.objects import GroupResource, Object, to_json
from headrace.dev.api.status import Cause, invalid, invalid_value, required, unsupported_value
from headrace.dev.api.tables import age_column, name_column, path_column
from headrace.dev.api.typed_members import ROOT, check_type, drop_unknown, read_map

_MEMBERS = ROOT | {"spec", "status"}
_SPEC = {
    **dict.fromkeys(("clusterIP", "type", "sessionAffinity", "loadBalancerIP", "externalName"), "string"),
    **dict.fromkeys(("externalTrafficPolicy", "internalTrafficPolicy", "ipFamilyPolicy"), "string"),
    **dict.fromkeys(("loadBalancerClass", "trafficDistribution"), "string"),
    **dict.fromkeys(("publishNotReadyAddresses", "allocateLoadBalancerNodePorts"), "bool"),
    **dict.fromkeys(("clusterIPs", "externalIPs", "loadBalancerSourceRanges", "ipFamilies"), "[]string"),
    "healthCheckNodePort": "int32",
    "sessionAffinityConfig": "v1.SessionAffinityConfig",
    "selector": "map[string]string",
    "ports": "[]v1.ServicePort",
}
_PORT = {**dict.fromkeys(("name", "protocol", "appProtocol"), "string"), "port": "int32", "nodePort": "int32"}
_HEADLESS = "None"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_PORT_MAX = 65_535
_PORT_RULE = f"must be between 1 and {_PORT_MAX}, inclusive"
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PORT_NAME_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_PORT_NAME.pattern}')"
)
_TARGET_NAME = re.compile(r"[-a-z0-9]+")
_TARGET_RULE = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"


def read_service(obj: Object) -> list[str]:
    unknown = drop_unknown(obj, _MEMBERS)
    check_type(obj.get("spec"), "v1.ServiceSpec", "Service.spec")
    spec: Object = obj.get("spec") or {}
    obj["spec"] = spec
    unknown += drop_unknown(spec, _SPEC, "spec.")
    for name, wanted in _SPEC.items():
        check_type(spec.get(name), wanted, f"ServiceSpec.spec.{name}")
    read_map(spec, "selector", "string", "ServiceSpec.spec.selector")
    for index, port in enumerate(spec.get("ports") or ()):
        check_type(port, "v1.ServicePort", "ServiceSpec.spec.ports")
        unknown += drop_unknown(port, {*_PORT, "targetPort"}, f"spec.ports[{index}].")
        for name, wanted in _PORT.items():
            check_type(port.get(name), wanted, f"ServicePort.spec.ports.{name}")
        if not isinstance(port.get("targetPort"), str):
            check_type(port.get("targetPort"), "int32", "ServicePort.spec.ports.targetPort")
        _drop_empty(port)
    _drop_empty(spec)
    return unknown


def _drop_empty(holder: Object) -> None:
    """Drop what Go leaves out when it writes an object."""
    for name in [name for name, value in holder.items() if value in (None, {}, [], "", 0) and value is not False]:
        del holder[name]


def complete_service(obj: Object, old: Object | None, now: datetime) -> None:
    spec = obj["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))
    causes = [*_errors(spec)]
    if old is not None:
        causes = [*_address_errors(spec, old["spec"]), *causes]
    if causes:
        raise invalid(GroupResource("", "Service"), obj["metadata"]["name"], causes)
    if spec["type"] != "ExternalName":
        _complete_addresses(spec)
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def _complete_addresses(spec: Object) -> None:
    spec.setdefault("clusterIP", _HEADLESS)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _address_errors(spec: Object, old: Object) -> Iterator[Cause]:
    """Yield errors of a change; an address that the writer leaves out stays what it was."""
    if "clusterIP" not in old or spec["type"] == "ExternalName":
        return
    if spec.setdefault("clusterIP", old["clusterIP"]) != old["clusterIP"]:
        message = f"Invalid value: {to_json([spec['clusterIP']])}: may not change once set"
        yield Cause("FieldValueInvalid", message, "spec.clusterIPs[0]")


def _errors(spec: Object) -> Iterator[Cause]:
    ports = spec.get("ports", [])
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != _HEADLESS:
        yield required("spec.ports")
    names: set[str] = set()
    numbers: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        place = f"spec.ports[{index}]"
        yield from _name_errors(place, port.get("name", ""), names, alone=len(ports) == 1)
        yield from _port_errors(place, port)
        number = (port.get("port", 0), port["protocol"])
        if number in numbers:
            yield _duplicate_port(place, *number)
        numbers.add(number)
    yield from label_errors("spec.selector", spec.get("selector", {}))
    if spec["sessionAffinity"] not in _AFFINITIES:
        yield unsupported_value("spec.sessionAffinity", spec["sessionAffinity"], _AFFINITIES)
    if spec["type"] not in _TYPES:
        yield unsupported_value("spec.type", spec["type"], _TYPES)


def _name_errors(place: str, name: str, taken: set[str], *, alone: bool) -> Iterator[Cause]:
    if not name:
        if not alone:
            yield required(f"{place}.name")
        return
    if not _PORT_NAME.fullmatch(name):
        yield invalid_value(f"{place}.name", name, _PORT_NAME_RULE)
    elif name in taken:
        yield Cause("FieldValueDuplicate", f"Duplicate value: {to_json(name)}", f"{place}.name")
    taken.add(name)


def _port_errors(place: str, port: Object) -> Iterator[Cause]:
    number, target = port.get("port", 0), port["targetPort"]
    if not 1 <= number <= _PORT_MAX:
        yield invalid_value(f"{place}.port", number, _PORT_RULE)
    if port["protocol"] not in _PROTOCOLS:
        yield unsupported_value(f"{place}.protocol", port["protocol"], _PROTOCOLS)
    if isinstance(target, str):
        if not _TARGET_NAME.fullmatch(target):
            yield invalid_value(f"{place}.targetPort", target, _TARGET_RULE)
    elif not 1 <= target <= _PORT_MAX:
        yield invalid_value(f"{place}.targetPort", target, _PORT_RULE)


def _duplicate_port(place: str, number: int, protocol: str) -> Cause:
    shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0}
    return Cause("FieldValueDuplicate", f"Duplicate value: {to_json(shown)}", place)


def _external(service: Object, now: datetime) -> str:
    spec = service["spec"]
    return str(spec.get("externalName") or ",".join(spec.get("externalIPs", ())) or "<none>")


def _ports(service: Object, now: datetime) -> str:
    return ",".join(f"{p['port']}/{p['protocol']}" for p in service["spec"].get("ports", ())) or "<none>"


def _selector(service: Object, now: datetime) -> str:
    selector: dict[str, Any] = service["spec"].get("selector", {})
    return ",".join(f"{name}={value}" for name, value in sorted(selector.items())) or "<none>"


def _address(service: Object, now: datetime) -> str:
    return str(service["spec"].get("clusterIP", "<none>"))


SERVICE = ResourceKind(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    singular="service",
    columns=(
        name_column(),
        path_column("Type", "string", ".spec.type"),
        TableColumn("Cluster-IP", "string", "The address of all its Pods together.", _address),
        TableColumn("External-IP", "string", "Where it is reached from outside.", _external),
        TableColumn("Port(s)", "string", "What it listens on.", _ports),
        age_column(),
        TableColumn("Selector", "string", "Which Pods answer for it.", _selector, 1),
    ),
    short_names=("svc",),
    categories=("all",),
    subresources=frozenset({"status"}),
    description="Service is a named abstraction of software service, and the selector that determines which pods will "
    "answer requests sent through the proxy.",
    counts_generations=False,
    unconditional_update=True,
    name_is_label=True,
    read=read_service,
    complete=complete_service,
)
