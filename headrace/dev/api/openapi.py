"""OpenAPI v3 documents, one for each group and version, made from the kinds that are served. Pure.

kubectl reads two things in them: whether PATCH takes `fieldValidation` (then `apply` and `create` let the server check
the fields), and the schemas (`explain`). The schemas of custom resources are their CRDs' own; of Kubernetes' kinds only
the outline is here, and PATCH bodies are left out for them, so that kubectl merges their lists by its own knowledge. In
the schema of `metadata` the names, the types and what is required are Kubernetes' own; the descriptions are short and
ours.
"""

import hashlib
from typing import Any

from headrace.dev.api.kinds import KindCatalog, ResourceKind
from headrace.dev.api.objects import Object, api_version, to_json

REFERENCE = "#/components/schemas/"
_PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META = f"{_PACKAGE}ObjectMeta"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_ROOT_PROPERTIES: Object = {
    "apiVersion": {
        "type": "string",
        "description": (
            "APIVersion defines the versioned schema of this representation of an object. Servers should convert "
            "recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
            f"{_CONVENTIONS}#resources"
        ),
    },
    "kind": {
        "type": "string",
        "description": (
            "Kind is a string value representing the REST resource this object represents. Servers may infer this from "
            "the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
            f"{_CONVENTIONS}#types-kinds"
        ),
    },
    "metadata": {
        "allOf": [{"$ref": REFERENCE + OBJECT_META}],
        "default": {},
        "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
    },
}
"""The properties that a kube-apiserver describes for every kind, whatever its definition has."""
V2_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT = b"\x0a\x032.0"
"""An empty OpenAPI v2 document, in protobuf (field 1: `swagger`, "2.0"). kubectl asks v2 for kinds that v3 does not
know; when neither has one, it reports that there is no such kind."""


def _text(description: str) -> Object:
    return {"type": "string", "description": description}


def _moment(description: str) -> Object:
    return {"allOf": [{"$ref": f"{REFERENCE}{_PACKAGE}Time"}], "description": description}


def _list_of(schema: str, description: str) -> Object:
    items = {"allOf": [{"$ref": f"{REFERENCE}{_PACKAGE}{schema}"}], "default": {}}
    return {"type": "array", "items": items, "description": description}


def _map(description: str) -> Object:
    return {"type": "object", "additionalProperties": {"type": "string", "default": ""}, "description": description}


_META: Object = {
    "annotations": _map("Key value pairs that tools store here."),
    "creationTimestamp": _moment("When it was created. Read-only."),
    "deletionGracePeriodSeconds": {
        "type": "integer",
        "format": "int64",
        "description": "How long it may take to stop when it is deleted. Read-only.",
    },
    "deletionTimestamp": _moment("When it is to be gone, once that it is being deleted. Read-only."),
    "finalizers": {
        "type": "array",
        "items": {"type": "string", "default": ""},
        "description": "Who has to do something first when it is deleted. Must be empty before it goes.",
    },
    "generateName": _text("A prefix, by which the server makes a unique name where none is given."),
    "generation": {"type": "integer", "format": "int64", "description": "Rises with each change of the spec."},
    "labels": _map("Key value pairs by which objects are selected."),
    "managedFields": _list_of("ManagedFieldsEntry", "Who manages which fields, for server-side apply."),
    "name": _text("The name, unique within a namespace. Cannot be updated."),
    "namespace": _text("The space within which the name must be unique."),
    "ownerReferences": _list_of("OwnerReference", "When all of these are gone, this object is garbage collected."),
    "resourceVersion": _text("The version of this object, opaque to clients. Read-only."),
    "selfLink": _text("Not used any more."),
    "uid": _text("Unique in time and space. Read-only."),
}
_OWNER: Object = {
    "apiVersion": _text("The API version of the owner."),
    "blockOwnerDeletion": {"type": "boolean", "description": "Foreground deletion of the owner waits for this object."},
    "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
    "kind": _text("The kind of the owner."),
    "name": _text("The name of the owner."),
    "uid": _text("The uid of the owner."),
}
_MANAGED: Object = {
    "apiVersion": _text("The version that the field names belong to."),
    "fieldsType": _text("How the fields are written."),
    "fieldsV1": {"allOf": [{"$ref": f"{REFERENCE}{_PACKAGE}FieldsV1"}], "description": "The fields."},
    "manager": _text("Who manages them."),
    "operation": _text("Apply or Update."),
    "subresource": _text("The subresource by which they were written."),
    "time": _moment("When they were written."),
}
META_SCHEMAS: Object = {
    OBJECT_META: {
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "properties": _META,
    },
    f"{_PACKAGE}OwnerReference": {
        "type": "object",
        "description": "OwnerReference names an owner in the same namespace, or of the whole cluster.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": _OWNER,
    },
    f"{_PACKAGE}ManagedFieldsEntry": {
        "type": "object",
        "description": "ManagedFieldsEntry names the fields of one manager.",
        "properties": _MANAGED,
    },
    f"{_PACKAGE}FieldsV1": {"type": "object", "description": "FieldsV1 is a set of fields."},
    f"{_PACKAGE}Time": {"type": "string", "format": "date-time", "description": "Time is a moment of RFC 3339."},
}


_WRITE_PARAMETERS: list[Object] = [
    {"name": name, "in": "query", "description": description, "schema": {"type": "string", "uniqueItems": True}}
    for name, description in {
        "dryRun": "All: check everything, change nothing.",
        "fieldManager": "Who makes the change, as managedFields name them.",
        "fieldValidation": "What becomes of unknown and duplicate fields: Ignore, Warn or Strict.",
    }.items()
]


def index(catalog: KindCatalog) -> Object:
    """Return where the document of each group and version is; the hash lets clients keep what they have."""
    paths = {}
    for group, version in sorted({(kind.group, kind.version) for kind in catalog}):
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = hashlib.sha256(to_json(document(catalog, group, version)).encode()).hexdigest().upper()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
    return {"paths": paths}


def document(catalog: KindCatalog, group: str, version: str) -> Object | None:
    """Return the document of one group and version; None where it is not served."""
    kinds = [kind for kind in catalog if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    schemas: Object = dict(META_SCHEMAS)
    paths: Object = {}
    for kind in kinds:
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": f"Kubernetes API of headrace dev: {api_version(group, version)}", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(kind: ResourceKind) -> str:
    reversed_group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{reversed_group}.{kind.version}.{kind.kind}"


def _schema(kind: ResourceKind) -> Object:
    schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind.schema is not None:
        schema = dict(kind.schema.raw)
    properties = schema.get("properties", {}) | _ROOT_PROPERTIES
    described = {"description": kind.description} if kind.description else {}
    return schema | described | {"properties": properties, "x-kubernetes-group-version-kind": [_identity(kind)]}


def _paths(kind: ResourceKind) -> Object:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    one = f"{collection}/{{name}}"
    paths = {
        collection: {"get": _operation(kind, "list"), "post": _operation(kind, "post")},
        one: {
            "get": _operation(kind, "get"),
            "put": _operation(kind, "put"),
            "patch": _operation(kind, "patch"),
            "delete": _operation(kind, "delete"),
        },
    }
    if kind.namespaced:
        paths[f"{root}/{kind.plural}"] = {"get": _operation(kind, "list")}
    for name in sorted(kind.subresources):
        paths[f"{one}/{name}"] = {"get": _operation(kind, "get"), "patch": _operation(kind, "patch")}
    return paths


def _operation(kind: ResourceKind, action: str) -> Object:
    operation: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": REFERENCE + _schema_name(kind)}}},
            }
        },
    }
    if action in ("post", "put", "patch"):
        operation["parameters"] = _WRITE_PARAMETERS
    return operation


def _identity(kind: ResourceKind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
