"""Kubernetes' protobuf envelope, read for what `kubectl create` sends in it: Namespace, Secret, Service.

The envelope is four magic bytes and a `runtime.Unknown` (type, then the object's own bytes). Of a Namespace all that
can matter is its `metadata`. Every other kind is answered with 415, and its clients send JSON. Pure; wire format as
in the Protocol Buffers encoding guide, field numbers as in the `generated.proto` files of apimachinery and of the API.
"""

import base64
from collections.abc import Iterator

from headrace.dev.api.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_SERVICE_STRINGS = {3: "clusterIP", 4: "type", 7: "sessionAffinity", 8: "loadBalancerIP", 10: "externalName"}
_TRUE = b"\x01"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STRINGS = {1: "name", 2: "generateName", 3: "namespace"}
_MAPS = {11: "labels", 12: "annotations"}


def read_object(body: bytes) -> Object | None:
    """The object in `body`; None for another kind, or what is no envelope. Raises ValueError where it breaks off."""
    if not body.startswith(_MAGIC):
        return None
    envelope = dict(_fields(body[len(_MAGIC) :]))
    type_meta = dict(_fields(envelope.get(1, b"")))
    api_version, kind = (type_meta.get(number, b"").decode() for number in (1, 2))
    head = {"apiVersion": api_version, "kind": kind}
    message = envelope.get(2, b"")
    match api_version, kind:
        case "v1", "Namespace":
            return head | {"metadata": _metadata(dict(_fields(message)).get(1, b""))}
        case "v1", "Secret":
            return head | _secret(message)
        case "v1", "Service":
            return head | _service(message)
        case _:
            return None


def _secret(message: bytes) -> Object:
    secret: Object = {"metadata": {}, "data": {}, "stringData": {}}
    for number, value in _fields(message):
        match number:
            case 1:
                secret["metadata"] = _metadata(value)
            case 2:
                key, content = _entry(value)
                secret["data"][key] = base64.b64encode(content).decode()
            case 3:
                secret["type"] = value.decode()
            case 4:
                key, content = _entry(value)
                secret["stringData"][key] = content.decode()
            case 5:
                secret["immutable"] = value == _TRUE
            case _:
                pass
    return secret


def _service(message: bytes) -> Object:
    service: Object = {"metadata": {}, "spec": {}}
    for number, value in _fields(message):
        if number == 1:
            service["metadata"] = _metadata(value)
        elif number == 2:
            service["spec"] = _service_spec(value)
    return service


def _service_spec(message: bytes) -> Object:
    """What `kubectl create service` can say. Raises ValueError for anything else: it must not be lost in silence."""
    spec: Object = {"ports": [], "selector": {}}
    for number, value in _fields(message):
        if number == 1:
            spec["ports"].append(_service_port(value))
        elif number == 2:
            key, content = _entry(value)
            spec["selector"][key] = content.decode()
        elif number in _SERVICE_STRINGS:
            spec[_SERVICE_STRINGS[number]] = value.decode()
        elif value.strip(b"\x00"):
            raise ValueError(f"field {number} of a ServiceSpec is not read in protobuf here: send JSON")
    return spec


def _service_port(message: bytes) -> Object:
    fields = dict(_fields(message))
    target = dict(_fields(fields.get(4, b"")))
    by_name = _varint(target.get(1, b"\x00"), 0)[0] == 1
    number = _varint(target.get(2, b"\x00"), 0)[0]
    return {
        "name": fields.get(1, b"").decode(),
        "protocol": fields.get(2, b"").decode(),
        "port": _varint(fields.get(3, b"\x00"), 0)[0],
        "targetPort": target.get(3, b"").decode() if by_name else number,
        "nodePort": _varint(fields.get(5, b"\x00"), 0)[0],
    }


def _metadata(message: bytes) -> Object:
    meta: Object = {}
    for number, value in _fields(message):
        if number in _STRINGS and value:
            meta[_STRINGS[number]] = value.decode()
        elif number in _MAPS:
            key, content = _entry(value)
            meta.setdefault(_MAPS[number], {})[key] = content.decode()
    return meta


def _entry(message: bytes) -> tuple[str, bytes]:
    """Of a map: key and value."""
    entry = dict(_fields(message))
    return entry.get(1, b"").decode(), entry.get(2, b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, and its varints as they are encoded; other numbers are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case wire if wire == _BYTES:
                length, at = _varint(message, at)
                if at + length > len(message):
                    raise ValueError(f"field {tag >> 3} claims {length} bytes, {len(message) - at} are left")
                yield tag >> 3, message[at : at + length]
                at += length
            case wire if wire == _VARINT:
                start = at
                _, at = _varint(message, at)
                yield tag >> 3, message[start:at]
            case wire if wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            case wire:
                raise ValueError(f"wire type {wire} of field {tag >> 3} is not one of protobuf's")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number breaks off")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
