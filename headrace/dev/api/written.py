"""What a writer sends, read as an object of its kind. Pure.

`read_object` checks that the body is such an object and removes the fields that the kind does not know; what is to
become of them is the writer's `fieldValidation`: an error, a warning, or nothing.
"""

from enum import StrEnum

from headrace.core.slotted import dataclass
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import Kind
from headrace.dev.api.object_meta import normalize
from headrace.dev.api.objects import GroupResource, Object, to_json
from headrace.dev.api.status import StatusError, UndecodableError, bad_request, invalid, invalid_value
from headrace.dev.api.structural import drop_nulls, prune_root


class FieldValidation(StrEnum):
    """What becomes of unknown and duplicate fields."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    validation: FieldValidation = FieldValidation.WARN
    dry_run: bool = False
    manager: str = "unknown"
    """Who writes, as managedFields name them."""
    force: bool = False
    """Of an apply: take fields from other managers that have other values in them."""


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to a write: the object as it is now, in the form of its kind."""

    object: Object
    warnings: tuple[str, ...] = ()
    created: bool = False


def read_object(kind: Kind, document: Document, validation: FieldValidation) -> tuple[Object, tuple[str, ...]]:
    """The object in `document`, which it may share, and the warnings to send with the answer.

    Raises UndecodableError where it cannot be an object of `kind` or is refused for its fields, StatusError where it is
    no object, or says itself that it is another kind's.
    """
    obj = document.value
    if not isinstance(obj, dict):
        raise _no_object(kind, document)
    if kind.schema is None:
        # Typed clients leave them out; of Kubernetes' own kinds the URL says enough.
        obj["kind"] = obj.get("kind") or kind.kind
        obj["apiVersion"] = obj.get("apiVersion") or kind.api_version
    _check_kind(kind, obj, document.summary)
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise UndecodableError("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    unknown = normalize(meta)
    if kind.schema is None:
        unknown += kind.read(obj)
    else:
        unknown += prune_root(obj, kind.schema)
        drop_nulls(obj, kind.schema)
    said = [f'duplicate field "{path}"' for path in document.duplicates]
    said += [f'unknown field "{path}"' for path in unknown]
    if said and validation is FieldValidation.STRICT:
        raise UndecodableError(f"strict decoding error: {', '.join(said)}")
    return obj, tuple(said) if validation is FieldValidation.WARN else ()


def unreadable(kind: Kind, error: UndecodableError) -> StatusError:
    """400: the body of a create or replace cannot be read."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}')


def _no_object(kind: Kind, document: Document) -> StatusError:
    found = {list: "array", str: "string", bool: "bool"}.get(type(document.value), "number")
    wanted = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind; "
        f"json parse error: json: cannot unmarshal {found} into Go value of type {wanted} ({document.summary})"
    )


def _check_kind(kind: Kind, obj: Object, summary: str) -> None:
    said_version, said_kind = obj.get("apiVersion"), obj.get("kind")
    if not said_kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object 'Kind' is missing in '{to_json(obj)}' ({summary})"
        )
    if said_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({said_version}) does not match the expected API version ({kind.api_version})"
        )
    if said_kind != kind.kind:
        name = str((obj.get("metadata") or {}).get("name", ""))
        cause = invalid_value("kind", said_kind, f"must be {kind.kind}")
        raise invalid(GroupResource(kind.group, str(said_kind)), name, [cause])
