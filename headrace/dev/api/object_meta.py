"""`metadata`: the part that a writer may set, the part that only the server sets, and the rules that all kinds share.

Pure. The messages are Kubernetes' own (apimachinery's validation). Called by `strategy`.
"""

import re
from collections.abc import Iterator
from typing import Any

from headrace.dev.api.objects import Object
from headrace.dev.api.status import Cause, UndecodableError, forbidden_value, invalid_value, required

_STRINGS = ("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion")
_TIMES = ("creationTimestamp", "deletionTimestamp")
_INTEGERS = ("generation", "deletionGracePeriodSeconds")
_STRING_MAPS = ("labels", "annotations")
_LISTS = {"ownerReferences": "v1.OwnerReference", "finalizers": "string", "managedFields": "v1.ManagedFieldsEntry"}
_WANTED: dict[str, tuple[type, str]] = {
    **dict.fromkeys((*_STRINGS, *_TIMES), (str, "string")),
    **dict.fromkeys(_INTEGERS, (int, "int64")),
    **dict.fromkeys(_STRING_MAPS, (dict, "map[string]string")),
    **{name: (list, f"[]{element}") for name, element in _LISTS.items()},
}
"""The members, with their types here and as Go spells them."""
_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
"""The members whose change is an error; other changes of what the server owns are ignored."""
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "name",
    "namespace",
    "resourceVersion",
)

_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_PART_BYTES_MAX = 63
_ANNOTATIONS_BYTES_MAX = 256 << 10

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
)
_DNS_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_DNS_LABEL.pattern}')"
)
_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_NAME_PART.pattern}')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE.pattern}')"
)


def normalize(meta: Object) -> list[str]:
    """Drop unknown and empty members of `metadata`, and return the paths of the unknown ones.

    Raises UndecodableError for a member of the wrong type.
    """
    unknown = sorted(name for name in meta if name not in _WANTED)
    for name in unknown:
        del meta[name]
    for name in list(meta):
        _check_type(name, meta[name])
        if meta[name] in (None, "", {}, []):
            del meta[name]
    meta.pop("selfLink", None)
    return [f"metadata.{name}" for name in unknown]


def keep_server_owned(meta: Object, old: Object) -> None:
    """Keep, on update, what only the server writes."""
    for name in _SERVER_OWNED:
        meta.pop(name, None)
        if name in old:
            meta[name] = old[name]


def validate_meta(meta: Object, *, name_is_label: bool = False) -> Iterator[Cause]:
    if "name" not in meta:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from _name_errors(meta["name"], name_is_label=name_is_label)
    yield from label_errors("metadata.labels", meta.get("labels", {}))
    yield from _finalizer_errors(meta.get("finalizers", []))
    yield from _annotation_errors(meta.get("annotations", {}))
    yield from _owner_errors(meta.get("ownerReferences", []))


def label_errors(field: str, labels: Object) -> Iterator[Cause]:
    """Yield what is wrong with names and values of labels, wherever they stand."""
    for name, value in labels.items():
        yield from (invalid_value(field, name, rule) for rule in qualified_name_errors(name))
        yield from (invalid_value(field, value, rule) for rule in label_value_errors(value))


def qualified_name_errors(name: str) -> Iterator[str]:
    """Yield the rules that `name`, the key of a label or annotation, breaks."""
    prefix, slash, part = name.rpartition("/")
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        yield f"prefix part {_SUBDOMAIN_RULE}"
    if not part:
        yield "name part must be non-empty"
    elif len(part) > _PART_BYTES_MAX:
        yield f"name part must be no more than {_PART_BYTES_MAX} bytes"
    if not _NAME_PART.fullmatch(part):
        yield _NAME_PART_RULE


def label_value_errors(value: str) -> Iterator[str]:
    """Yield the rules that the value of a label breaks."""
    if len(value) > _PART_BYTES_MAX:
        yield f"must be no more than {_PART_BYTES_MAX} bytes"
    if not _LABEL_VALUE.fullmatch(value):
        yield _LABEL_VALUE_RULE


def finalizer_warnings(meta: Object, old: Object) -> Iterator[str]:
    """Yield warnings for a writer: new finalizers that another program might use under the same name."""
    for name in meta.get("finalizers", []):
        if "/" not in name and name not in _STANDARD_FINALIZERS and name not in old.get("finalizers", []):
            path = " including a path (/)" if "." in name else ""
            yield (
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} to avoid accidental '
                "conflicts with other finalizer writers"
            )


def validate_meta_update(meta: Object, old: Object) -> Iterator[Cause]:
    """Yield what is wrong with `meta` as the writer sent it, given what it was."""
    for name in _IMMUTABLE:
        if meta.get(name, old.get(name)) != old.get(name):
            yield invalid_value(f"metadata.{name}", meta[name], "field is immutable")
    if "deletionTimestamp" in old:
        added = [f for f in meta.get("finalizers", []) if f not in old.get("finalizers", [])]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            rule = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            yield forbidden_value("metadata.finalizers", rule)


def _name_errors(name: str, *, name_is_label: bool) -> Iterator[Cause]:
    pattern, rule, longest = (_DNS_LABEL, _DNS_LABEL_RULE, 63) if name_is_label else (_SUBDOMAIN, _SUBDOMAIN_RULE, 253)
    if len(name) > longest:
        yield invalid_value("metadata.name", name, f"must be no more than {longest} characters")
    if not pattern.fullmatch(name):
        yield invalid_value("metadata.name", name, rule)


def _finalizer_errors(finalizers: list[str]) -> Iterator[Cause]:
    for finalizer in finalizers:
        yield from (invalid_value("metadata.finalizers", finalizer, rule) for rule in qualified_name_errors(finalizer))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        rule = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid_value("metadata.finalizers", finalizers, rule)


def _annotation_errors(annotations: Object) -> Iterator[Cause]:
    for name in annotations:
        rules = qualified_name_errors(name.lower())
        yield from (invalid_value("metadata.annotations", name, rule) for rule in rules)
    if sum(len(text.encode()) for pair in annotations.items() for text in pair) > _ANNOTATIONS_BYTES_MAX:
        rule = f"Too long: may not be more than {_ANNOTATIONS_BYTES_MAX} bytes"
        yield Cause("FieldValueTooLong", rule, "metadata.annotations")


def _owner_errors(owners: list[Object]) -> Iterator[Cause]:
    for owner in owners:
        for member in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(member):
                yield invalid_value(f"metadata.ownerReferences.{member}", "", "must not be empty")
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        rule = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        yield invalid_value("metadata.ownerReferences", owners, rule)


def _check_type(name: str, value: Any) -> None:
    if value is None:
        return
    wanted, spelled = _WANTED[name]
    if not isinstance(value, wanted):
        raise _wrong_type(name, value, spelled)
    if isinstance(value, dict):
        for child in value.values():
            if not isinstance(child, str):
                raise _wrong_type(name, child, "string")
    elif isinstance(value, list):
        element, element_spelled = (str, "string") if name == "finalizers" else (dict, spelled.removeprefix("[]"))
        for child in value:
            if not isinstance(child, element):
                raise _wrong_type(name, child, element_spelled)


def _wrong_type(name: str, value: Any, wanted: str) -> UndecodableError:
    found = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}.get(type(value), "object")
    return UndecodableError(f"json: cannot unmarshal {found} into Go struct field ObjectMeta.{name} of type {wanted}")
