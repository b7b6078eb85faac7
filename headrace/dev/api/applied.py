"""The body of a server-side apply, read as part of an object of its kind. Pure.

Unlike other writes, an apply is refused for fields that the schema does not know, whatever its `fieldValidation`, and
before anything is merged. Called by `operations`.
"""

from headrace.dev.api.apply_errors import check_applied, identity_of
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import Kind
from headrace.dev.api.object_meta import normalize
from headrace.dev.api.objects import Object, copy_of
from headrace.dev.api.shapes import shape_of
from headrace.dev.api.status import StatusError, UndecodableError, bad_request
from headrace.dev.api.written import FieldValidation

_SCALE = ("autoscaling/v1", "Scale")


def read_applied(kind: Kind, document: Document) -> Object:
    """Raises StatusError 400 where the body is of another kind, 500 where it does not fit the schema."""
    patch: Object = document.value
    _check_type(patch, kind.api_version, kind.kind)
    if "managedFields" in (patch.get("metadata") or {}):
        raise bad_request("metadata.managedFields must be nil")
    shape = shape_of(kind.kind, kind.shape)
    check_applied(patch, shape, [])
    if kind.schema is None:
        check_applied(patch, shape, _undeclared(kind, patch))
    return patch


def read_merged(kind: Kind, obj: Object) -> Object:
    """What an apply has made of the object, brought into the form that is stored. Raises UndecodableError."""
    normalize(obj["metadata"])
    if kind.schema is None:
        kind.read(obj)
    return obj


def read_applied_scale(kind: Kind, document: Document) -> Document:
    """A Scale that is applied, as part of the object that it scales. Raises StatusError 400 where it is none."""
    scale: Object = document.value
    _check_type(scale, *_SCALE)
    whole = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": scale.get("metadata") or {}}
    return Document(whole | {"spec": scale.get("spec") or {}}, document.duplicates)


def duplicate_warnings(document: Document, validation: FieldValidation) -> tuple[str, ...]:
    """Raises StatusError 400 where the writer wants none."""
    if document.duplicates and validation is FieldValidation.STRICT:
        listed = "\n  ".join(document.duplicates)
        why = f"error converting YAML to JSON: yaml: unmarshal errors:\n  {listed}"
        raise bad_request(f"error strict decoding YAML: {why}")
    return document.duplicates if validation is FieldValidation.WARN else ()


def check_new(kind: Kind, name: str, patch: Object) -> None:
    """An apply creates what is not there, unless it names an object that once was. Raises StatusError."""
    meta = patch.get("metadata") or {}
    if not meta.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if meta.get("uid"):
        why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        raise StatusError(409, "Conflict", message, {key: value for key, value in details.items() if value})


def _check_type(patch: Object, version: str, kind: str) -> None:
    said_version, said_kind = patch.get("apiVersion") or "", patch.get("kind") or ""
    if (said_version, said_kind) != (version, kind):
        slashed = said_version if "/" in said_version else f"/{said_version}"
        raise bad_request(f"invalid object type: {slashed}, Kind={said_kind}")


def _undeclared(kind: Kind, patch: Object) -> list[str]:
    """Paths of the fields that the kind does not have, as far as it is known here."""
    try:
        return kind.read(copy_of(patch))
    except UndecodableError as error:
        shown, wanted = identity_of(patch), f"{kind.group}/{kind.version}, Kind={kind.kind}"
        why = f"unable to convert unstructured object to {wanted}: error decoding from json: {error}"
        raise StatusError(500, "", f"failed to convert new object ({shown}) to proper version: {why}") from error
