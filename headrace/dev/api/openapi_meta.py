"""The schemas of `metadata` in OpenAPI documents: the fields that every object has, for `kubectl explain`. Pure.

Names, types and what is required are Kubernetes' own; the descriptions are short and ours. Called by `openapi`.
"""

from headrace.dev.api.objects import Object

REFERENCE = "#/components/schemas/"
_PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META = f"{_PACKAGE}ObjectMeta"


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
