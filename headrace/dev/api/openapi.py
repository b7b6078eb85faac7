"""OpenAPI v3 documents, one for each group and version, made from the kinds that are served. Pure.

kubectl reads two things in them: whether PATCH takes `fieldValidation` (then `apply` and `create` let the server
check the fields), and the schemas (`explain`). The schemas of custom resources are their CRDs' own; of Kubernetes'
kinds only the outline is here, and PATCH bodies are left out for them, so that kubectl merges their lists by its own
knowledge.
"""

import hashlib
from typing import Any

from headrace.dev.api.kinds import Catalog, Kind
from headrace.dev.api.objects import Object, api_version, to_json

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_REFERENCE = "#/components/schemas/"
_STRING_MAP: Object = {"type": "object", "additionalProperties": {"type": "string", "default": ""}}
_OBJECT_META: Object = {
    "type": "object",
    "description": "ObjectMeta is metadata that all persisted resources must have.",
    "properties": {
        "name": {"type": "string", "description": "Name must be unique within a namespace. Cannot be updated."},
        "generateName": {"type": "string", "description": "A prefix, used by the server to make a unique name."},
        "namespace": {"type": "string", "description": "The space within which the name must be unique."},
        "uid": {"type": "string", "description": "Unique in time and space. Read-only."},
        "resourceVersion": {"type": "string", "description": "The version of this object, opaque. Read-only."},
        "generation": {"type": "integer", "format": "int64", "description": "Rises with each change of the spec."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "Read-only."},
        "deletionTimestamp": {"type": "string", "format": "date-time", "description": "Read-only."},
        "labels": _STRING_MAP | {"description": "Key value pairs by which objects are selected."},
        "annotations": _STRING_MAP | {"description": "Key value pairs that tools store here."},
        "finalizers": {
            "type": "array",
            "items": {"type": "string", "default": ""},
            "description": "Must be empty before the object is deleted.",
        },
        "ownerReferences": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Objects depended by this object: when all are gone, this one is garbage collected.",
        },
    },
}
_ROOT_PROPERTIES: Object = {
    "apiVersion": {"type": "string", "description": "The versioned schema of this representation of an object."},
    "kind": {"type": "string", "description": "The REST resource that this object represents."},
}
_WRITE_PARAMETERS: list[Object] = [
    {"name": name, "in": "query", "description": description, "schema": {"type": "string", "uniqueItems": True}}
    for name, description in {
        "dryRun": "All: check everything, change nothing.",
        "fieldManager": "Who makes the change. Accepted, not kept.",
        "fieldValidation": "What becomes of unknown and duplicate fields: Ignore, Warn or Strict.",
    }.items()
]


V2_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT = b"\x0a\x032.0"
"""An OpenAPI v2 document that knows nothing, in protobuf (field 1: `swagger`, "2.0"). kubectl asks v2 for kinds
that v3 does not know; finding them neither there, it says that there is no such kind."""


def index(catalog: Catalog) -> Object:
    """Where the document of each group and version is; the hash lets clients keep what they have."""
    paths = {}
    for group, version in sorted({(kind.group, kind.version) for kind in catalog}):
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = hashlib.sha256(to_json(document(catalog, group, version)).encode()).hexdigest().upper()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
    return {"paths": paths}


def document(catalog: Catalog, group: str, version: str) -> Object | None:
    """The document of one group and version; None where it is not served."""
    kinds = [kind for kind in catalog if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    schemas: Object = {_META: _OBJECT_META}
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


def _schema_name(kind: Kind) -> str:
    reversed_group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{reversed_group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Object:
    schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind.schema is not None:
        schema = dict(kind.schema.raw)
    meta = {"allOf": [{"$ref": _REFERENCE + _META}], "description": "Standard object's metadata."}
    properties = schema.get("properties", {}) | _ROOT_PROPERTIES | {"metadata": meta}
    described = {"description": kind.description} if kind.description else {}
    return schema | described | {"properties": properties, "x-kubernetes-group-version-kind": [_identity(kind)]}


def _paths(kind: Kind) -> Object:
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


def _operation(kind: Kind, action: str) -> Object:
    operation: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": _REFERENCE + _schema_name(kind)}}},
            }
        },
    }
    if action in ("post", "put", "patch"):
        operation["parameters"] = _WRITE_PARAMETERS
    return operation


def _identity(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
