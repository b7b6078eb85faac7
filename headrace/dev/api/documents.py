"""Request bodies: JSON or YAML (of three kinds protobuf, too) in, plain values out. Pure.

The fields that a JSON body names twice are reported as well. kubectl sends Namespaces, Secrets and Services that it
creates in Kubernetes' protobuf envelope: four magic bytes and a `runtime.Unknown` (type, then the object's own bytes).
Nothing but `metadata` can matter of a Namespace. Every other kind is answered with 415, and its clients send JSON. The
wire format is that of the Protocol Buffers encoding guide, the field numbers are those of the `generated.proto` files
of apimachinery and of the API.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from headrace.dev.api.objects import Object
from headrace.dev.api.status import StatusError, bad_request, unsupported_media_type

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_SERVICE_STRINGS = {3: "clusterIP", 4: "type", 7: "sessionAffinity", 8: "loadBalancerIP", 10: "externalName"}
_TRUE = b"\x01"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STRINGS = {1: "name", 2: "generateName", 3: "namespace"}
_MAPS = {11: "labels", 12: "annotations"}
JSON = "application/json"
YAML = "application/yaml"
_SUMMARY_BYTES = 30
_UNSAID = "application/octet-stream"
"""The media type that HTTP gives a body without Content-Type; here it is JSON, as `kubectl create --raw` sends it."""
_COMPLAINTS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
}
"""The complaints of Python's JSON reader, and those of Go's."""
_LITERALS = {"n": "null", "t": "true", "f": "false"}


def read_protobuf(body: bytes) -> Object | None:
    """Return the object in `body`; None for another kind, or for bytes that are no envelope. Raises ValueError where it
    breaks off."""
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
    """Return what `kubectl create service` can express. Raises ValueError for anything else, which must not be lost in
    silence."""
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
    """Return key and value of a map's entry."""
    entry = dict(_fields(message))
    return entry.get(1, b"").decode(), entry.get(2, b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the length-delimited fields of a message, and its varints as they are encoded; other numbers are
    skipped."""
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


@dataclass(frozen=True, slots=True)
class Document:
    value: Any
    duplicates: tuple[str, ...] = ()
    """The paths of fields that the body names more than once; the last one counts."""
    summary: str = ""
    """The beginning of the body, for messages."""


def decode(body: bytes, media_type: str, kind: str = "") -> Document:
    """Decode a body. Raises StatusError 415 for another media type, 400 for a body that cannot be read as an object of
    `kind`.

    A web page can send a body without Content-Type unasked, too: `routes` refuses it by its browser's headers.
    """
    if media_type in (JSON, _UNSAID) or media_type.endswith("+json"):
        return _decode_json(body, kind)
    if media_type == YAML:
        return _decode_yaml(body)
    if media_type == PROTOBUF:
        return _decode_protobuf(body)
    raise unsupported_media_type([JSON, YAML])


def decode_patch(body: bytes) -> Document:
    """Decode a patch in JSON. Raises StatusError 400 with the complaint of Go's JSON reader."""
    try:
        json.loads(body, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise bad_request(f"error decoding patch: {_complaint(error)}") from error
    return _decode_json(body, "")


def _complaint(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].strip().removeprefix(",").lstrip()
    if not rest or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    if error.msg == "Expecting value" and (literal := _LITERALS.get(rest[0])) is not None:
        return _literal_complaint(rest, literal)
    return f"invalid character '{rest[0]}' {_COMPLAINTS.get(error.msg, error.msg)}"


def _literal_complaint(rest: str, literal: str) -> str:
    for found, wanted in zip(rest, literal, strict=False):
        if found != wanted:
            return f"invalid character '{found}' in literal {literal} (expecting '{wanted}')"
    return "unexpected end of JSON input"


class _Pairs(dict[str, Any]):
    """An object that remembers which of its names came twice."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = sorted({name for name in names if names.count(name) > 1})


def _decode_json(body: bytes, kind: str) -> Document:
    repeats = False

    def read_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeats
        found = dict(pairs)
        repeats |= len(found) < len(pairs)
        return found

    try:
        value = json.loads(body, object_pairs_hook=read_pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _unreadable(body, f"json parse error: {_complaint(error)}", kind) from error
    except (ValueError, RecursionError) as error:
        raise _unreadable(body, f"json parse error: {error}", kind) from error
    # Finding where the repeated fields stand takes a second pass, made only when there are some.
    duplicates = tuple(_repeated(json.loads(body, object_pairs_hook=_Pairs), "")) if repeats else ()
    return Document(value, duplicates, _summary(body))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _repeated(value: Any, path: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, _Pairs):
        found += [f"{path}{name}" for name in value.repeated]
        for name, child in value.items():
            found += _repeated(child, f"{path}{name}.")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += _repeated(child, f"{path.removesuffix('.')}[{index}].")
    return found


class _JsonLoader(yaml.SafeLoader):
    """YAML with JSON's values: a timestamp stays the string that it is."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: bytes | str) -> list[Any]:
    """Return every document of a YAML stream. Raises yaml.YAMLError."""
    # The loader is a safe one: it constructs plain values only.
    return [document for document in yaml.load_all(text, Loader=_JsonLoader) if document is not None]


def _decode_yaml(body: bytes) -> Document:
    try:
        documents = load_yaml(body)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # The number is too long, or the list too deep.
        raise _unreadable(body, f"yaml parse error: {error}") from error
    if len(documents) != 1:
        raise _unreadable(body, "one YAML document is wanted")
    return Document(documents[0])


class _RepeatingLoader(_JsonLoader):
    """A loader that remembers which names come twice in one mapping, and where."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.repeated: list[tuple[int, str]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if name.value in seen:
                self.repeated.append((name.start_mark.line + 1, str(name.value)))
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def _yaml_complaint(error: Exception) -> str:
    """Return the error in the words of Go's YAML reader, which is made after the same model."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    wanted = re.fullmatch(r"expected (?:the )?(.*), but found .*", error.problem or "")
    said = f"did not find expected {wanted[1]}" if wanted else error.problem
    return f"line {error.problem_mark.line + 1}: {said}"


def decode_apply(body: bytes) -> Document:
    """Decode the partial object that is applied, in YAML; its duplicates are sentences. Raises StatusError 400."""
    loader = _RepeatingLoader(body)
    try:
        value = loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(
            f"error decoding YAML: error converting YAML to JSON: yaml: {_yaml_complaint(error)}"
        ) from error
    finally:
        loader.dispose()
    if value is not None and not isinstance(value, dict):
        found = {list: "array", str: "string", bool: "bool"}.get(type(value), "number")
        why = f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    said = tuple(f'line {line}: key "{name}" already set in map' for line, name in loader.repeated)
    return Document(value or {}, said)


def _decode_protobuf(body: bytes) -> Document:
    try:
        obj = read_protobuf(body)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    if obj is None:
        raise unsupported_media_type([JSON, YAML])
    return Document(obj)


def _unreadable(body: bytes, why: str, kind: str = "") -> StatusError:
    wanted = f" (must be of type {kind})" if kind else ""
    return bad_request(
        f"the object provided is unrecognized{wanted}: couldn't get version/kind; {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    """Return the beginning: as text where it looks like an object, else in hexadecimal."""
    if not body:
        return "<empty>"
    start = body[:_SUMMARY_BYTES]
    shown = start.decode("utf-8", "replace") if start.startswith(b"{") else start.hex()
    return shown if len(start) == len(body) else f"{shown} ..."
