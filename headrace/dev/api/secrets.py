"""Secrets: bytes in base64, `stringData` for writers, and the keys that each type must have. Pure.

The messages are a kube-apiserver's own; what it only warns of (a certificate that is none) is not checked.
"""

import base64
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from headrace.dev.api.kinds import ResourceKind, TableColumn
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import (
    Cause,
    UndecodableError,
    forbidden_value,
    invalid,
    invalid_value,
    required,
)
from headrace.dev.api.tables import age_column, name_column, path_column
from headrace.dev.api.typed_members import ROOT, check_type, drop_unknown, read_map

_MEMBERS = ROOT | {"data", "stringData", "type", "immutable"}
_OPAQUE = "Opaque"
_ACCOUNT_TYPE, _ACCOUNT_NOTE = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
_WANTED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_EITHER_KEY = {"kubernetes.io/basic-auth": ("username", "password")}
_JSON_TYPES = frozenset({"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"})
_BYTES_MAX = 1 << 20
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_CHARACTERS_MAX = 253
_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY.pattern}')"
)
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BASE64_GROUP = 4
_LINE_ENDS = b"\r\n"


def read_secret(obj: Object) -> list[str]:
    """Check and normalize a written Secret: `data` in plain base64, with `stringData` in it."""
    unknown = drop_unknown(obj, _MEMBERS)
    check_type(obj.get("type"), "v1.SecretType", "Secret.type")
    check_type(obj.get("immutable"), "bool", "Secret.immutable")
    data = {key: _normalized(text) for key, text in read_map(obj, "data", "[]uint8", "Secret.data").items()}
    for key, text in read_map(obj, "stringData", "string", "Secret.stringData").items():
        data[key] = base64.b64encode((text or "").encode()).decode()
    for name in ("stringData", "data"):
        obj.pop(name, None)
    if data:
        obj["data"] = data
    if obj.get("immutable") is None:
        obj.pop("immutable", None)
    obj["type"] = obj.get("type") or _OPAQUE
    return unknown


def complete_secret(obj: Object, old: Object | None, now: datetime) -> None:
    causes = [*_type_errors(obj), *_key_errors(obj)]
    if old is not None:
        causes = [*_change_errors(obj, old), *causes]
    if causes:
        raise invalid(GroupResource("", "Secret"), obj["metadata"]["name"], causes)


def _normalized(text: Any) -> str:
    """Return base64 as Go's decoder reads it and its encoder writes it. Raises UndecodableError."""
    if text is None:
        return ""
    raw = text.encode()
    at = _illegal_at(raw)
    if at is not None:
        raise UndecodableError(f"illegal base64 data at input byte {at}")
    return base64.b64encode(base64.b64decode(raw)).decode()


def _illegal_at(raw: bytes) -> int | None:
    """Return where Go stops reading base64; None where it reads all."""
    in_group = 0
    for at, byte in enumerate(raw):
        if byte in _BASE64:
            in_group = (in_group + 1) % _BASE64_GROUP
        elif byte not in _LINE_ENDS:
            return at if byte != ord("=") or in_group < 2 else _illegal_padding(raw, at, in_group)
    return len(raw) - in_group if in_group else None


def _illegal_padding(raw: bytes, at: int, in_group: int) -> int | None:
    """Return where the padding is wrong; `at` is the first `=`, after two or three characters of its group."""
    rest = [index for index in range(at + 1, len(raw)) if raw[index] not in _LINE_ENDS]
    if in_group == 2:
        if not rest:
            return len(raw)
        if raw[rest[0]] != ord("="):
            return rest[0] - 1
        rest = rest[1:]
    return rest[0] if rest else None


def _change_errors(obj: Object, old: Object) -> Iterator[Cause]:
    if obj["type"] != old["type"]:
        yield invalid_value("type", obj["type"], "field is immutable")
    if old.get("immutable"):
        rule = "field is immutable when `immutable` is set"
        if not obj.get("immutable"):
            yield forbidden_value("immutable", rule)
        if obj.get("data", {}) != old.get("data", {}):
            yield forbidden_value("data", rule)


def _key_errors(obj: Object) -> Iterator[Cause]:
    size = 0
    for key, text in obj.get("data", {}).items():
        size += len(base64.b64decode(text))
        place = f"data[{key}]"
        if len(key) > _KEY_CHARACTERS_MAX:
            yield invalid_value(place, key, f"must be no more than {_KEY_CHARACTERS_MAX} characters")
        if not _KEY.fullmatch(key):
            yield invalid_value(place, key, _KEY_RULE)
        if key == ".":
            yield invalid_value(place, key, "must not be '.'")
        elif key == "..":
            yield invalid_value(place, key, "must not be '..'")
        elif key.startswith(".."):
            yield invalid_value(place, key, "must not start with '..'")
    if size > _BYTES_MAX:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {_BYTES_MAX} bytes", "data")


def _type_errors(obj: Object) -> Iterator[Cause]:
    kind, data = obj["type"], obj.get("data", {})
    if kind == _ACCOUNT_TYPE and not obj["metadata"].get("annotations", {}).get(_ACCOUNT_NOTE):
        yield required(f"metadata.annotations[{_ACCOUNT_NOTE}]")
    for key in _WANTED_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif kind in _JSON_TYPES and not _is_json(data[key]):
            yield invalid_value(f"data[{key}]", "<secret contents redacted>", "unexpected end of JSON input")
    either = _EITHER_KEY.get(kind, ())
    if either and not data.keys() & set(either):
        yield from (required(f"data[{key}]") for key in either)


def _is_json(text: str) -> bool:
    try:
        json.loads(base64.b64decode(text))
    except ValueError:
        return False
    return True


SECRET = ResourceKind(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    singular="secret",
    columns=(
        name_column(),
        path_column("Type", "string", ".type"),
        TableColumn("Data", "string", "How many keys it holds.", lambda obj, now: len(obj.get("data", {}))),
        age_column(),
    ),
    description="Secret holds secret data of a certain type.",
    counts_generations=False,
    unconditional_update=True,
    fields=frozenset({"type"}),
    read=read_secret,
    complete=complete_secret,
)
