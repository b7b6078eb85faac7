"""CustomResourceDefinitions: what the server adds to them, and the kinds that they define. Pure.

A definition is established as soon as it is stored. Its finalizer keeps it until `collector` has removed its objects,
so that none of them is left behind without a kind.
"""

from collections.abc import Iterator
from datetime import datetime

from headrace.dev.api.cel_library import cel
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.objects import GroupResource, Object, rfc3339
from headrace.dev.api.schemas import Schema, custom_shape
from headrace.dev.api.status import Cause, invalid, invalid_value, required, unsupported_value
from headrace.dev.api.tables import age_column, name_column, path_column
from headrace.dev.api.typed_members import check_type, read_outline

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_QUALIFIED_KIND = GroupResource("apiextensions.k8s.io", "CustomResourceDefinition")


def read_definition(obj: Object) -> list[str]:
    """Read a definition only as deep as people make mistakes: the content of a schema is the schema's own matter.
    Raises UndecodableError."""
    read_outline(obj)
    spec = obj.get("spec") or {}
    check_type(spec.get("names"), "v1.CustomResourceDefinitionNames", "CustomResourceDefinitionSpec.spec.names")
    check_type(
        spec.get("versions"), "[]v1.CustomResourceDefinitionVersion", "CustomResourceDefinitionSpec.spec.versions"
    )
    for version in spec.get("versions") or ():
        place = "CustomResourceDefinitionVersion.spec.versions"
        check_type(version, "v1.CustomResourceDefinitionVersion", place)
        check_type((version or {}).get("schema"), "v1.CustomResourceValidation", f"{place}.schema")
    return []


def complete_definition(obj: Object, old: Object | None, now: datetime) -> None:
    """Add defaults, validation, finalizer and status to a definition. Raises StatusError 422."""
    spec = obj.setdefault("spec", {})
    if causes := list(_errors(obj["metadata"]["name"], spec)):
        raise invalid(_QUALIFIED_KIND, obj["metadata"]["name"], causes)
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if old is None:
        obj["metadata"].setdefault("finalizers", []).append(CLEANUP_FINALIZER)
    if not obj.get("status", {}).get("conditions"):
        obj["status"] = {"conditions": _conditions(now), "acceptedNames": names, "storedVersions": _stored(spec)}


def kinds_of(definition: Object) -> tuple[ResourceKind, ...]:
    """Return one kind for each version that is served."""
    return tuple(_kind(definition["spec"], version) for version in definition["spec"]["versions"] if version["served"])


def resource_of(definition: Object) -> GroupResource:
    return GroupResource(definition["spec"]["group"], definition["spec"]["names"]["plural"])


def _kind(spec: Object, version: Object) -> ResourceKind:
    names = spec["names"]
    raw_schema = version["schema"]["openAPIV3Schema"]
    schema = Schema.parse(raw_schema)
    columns = version.get("additionalPrinterColumns")
    shown = (
        [path_column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0), _described(c)) for c in columns]
        if columns
        else [age_column()]
    )
    return ResourceKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        columns=(name_column(), *shown),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=frozenset(version.get("subresources", {})) & {"status"},
        schema=schema,
        shape=custom_shape(schema),
        description=raw_schema.get("description", ""),
    )


def _described(column: Object) -> str:
    default = f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
    return str(column.get("description") or default)


def _errors(name: str, spec: Object) -> Iterator[Cause]:
    names = spec.get("names") or {}
    if not spec.get("group"):
        yield required("spec.group")
    for member in ("plural", "kind"):
        if not names.get(member):
            yield required(f"spec.names.{member}")
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if name != wanted:
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        choices = ["Cluster", "Namespaced"]
        yield unsupported_value("spec.scope", spec["scope"], choices) if spec.get("scope") else required("spec.scope")
    if not spec.get("versions"):
        yield required("spec.versions")
    for index, version in enumerate(spec.get("versions") or ()):
        yield from _version_errors(version or {}, f"spec.versions[{index}]")


def _version_errors(version: Object, path: str) -> Iterator[Cause]:
    for member in ("name", "served", "storage"):
        if member not in version:
            yield required(f"{path}.{member}")
    raw_schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(raw_schema, dict):
        yield required(f"{path}.schema.openAPIV3Schema")
        return
    yield from _rule_errors(Schema.parse(raw_schema), f"{path}.schema.openAPIV3Schema")


def _rule_errors(schema: Schema, path: str) -> Iterator[Cause]:
    """Yield errors of rules: a rule that does not compile is refused with the definition, not met by the first
    object."""
    for index, rule in enumerate(schema.rules):
        try:
            cel.compile(rule.expression)
        except ValueError as error:
            yield invalid_value(f"{path}.x-kubernetes-validations[{index}].rule", rule.expression, str(error))
    for name, node in schema.properties.items():
        yield from _rule_errors(node, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _rule_errors(schema.items, f"{path}.items")


def _stored(spec: Object) -> list[str]:
    return [version["name"] for version in spec["versions"] if version["storage"]]


def _conditions(now: datetime) -> list[Object]:
    said = {
        "NamesAccepted": ("NoConflicts", "no conflicts found"),
        "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
    }
    return [
        {"type": type_, "status": "True", "lastTransitionTime": rfc3339(now), "reason": reason, "message": message}
        for type_, (reason, message) in said.items()
    ]
