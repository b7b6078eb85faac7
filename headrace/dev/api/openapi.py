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
from headrace.dev.api.openapi_meta import META_SCHEMAS, OBJECT_META, REFERENCE

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
"""What a kube-apiserver says of every kind, whatever its definition says."""
_WRITE_PARAMETERS: list[Object] = [
    {"name": name, "in": "query", "description": description, "schema": {"type": "string", "uniqueItems": True}}
    for name, description in {
        "dryRun": "All: check everything, change nothing.",
        "fieldManager": "Who makes the change, as managedFields name them.",
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


def _schema_name(kind: Kind) -> str:
    reversed_group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{reversed_group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Object:
    schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind.schema is not None:
        schema = dict(kind.schema.raw)
    properties = schema.get("properties", {}) | _ROOT_PROPERTIES
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
                "content": {"application/json": {"schema": {"$ref": REFERENCE + _schema_name(kind)}}},
            }
        },
    }
    if action in ("post", "put", "patch"):
        operation["parameters"] = _WRITE_PARAMETERS
    return operation


def _identity(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
