"""Discovery: which groups, versions and resources are served; plain, and in the aggregated form of kubectl. Pure."""

from collections.abc import Iterable

from headrace.dev.api.kinds import KindCatalog, ResourceKind
from headrace.dev.api.objects import Object, api_version

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
"""The same verbs, in the order in which a kube-apiserver lists them for custom resources."""
_SUBRESOURCE_VERBS = ["get", "patch", "update"]
REVIEW_GROUP = "authorization.k8s.io"
_REVIEW: Object = {
    "resource": "selfsubjectaccessreviews",
    "responseKind": {"group": REVIEW_GROUP, "version": "v1", "kind": "SelfSubjectAccessReview"},
    "scope": "Cluster",
    "singularResource": "selfsubjectaccessreview",
    "verbs": ["create"],
}
"""The one resource that is not stored: it answers a question (`kubectl auth can-i`)."""


def core_versions() -> Object:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalog: KindCatalog) -> Object:
    groups = [group(catalog, name) for name in _groups(catalog) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalog: KindCatalog, name: str) -> Object | None:
    """Return one group; None where it is not served."""
    versions = _versions(catalog, name)
    if not versions:
        return None
    listed = [{"groupVersion": api_version(name, version), "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(catalog: KindCatalog, group_name: str, version: str) -> Object | None:
    """Return the resources of one group and version; None where it is not served."""
    resources = [
        entry
        for aggregated in _resources(catalog, group_name, version)
        for entry in _plain(aggregated, group_name, version)
    ]
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group_name, version),
        "resources": resources,
    }


def aggregated(catalog: KindCatalog, *, core: bool) -> Object:
    """Return everything at once: the core group under `/api`, all others under `/apis`."""
    items = []
    for name in _groups(catalog):
        if (name == "") is core:
            versions = [
                {"version": version, "resources": _resources(catalog, name, version), "freshness": "Current"}
                for version in _versions(catalog, name)
            ]
            items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _groups(catalog: KindCatalog) -> Iterable[str]:
    return dict.fromkeys([*(kind.group for kind in catalog), REVIEW_GROUP])


def _versions(catalog: KindCatalog, name: str) -> list[str]:
    if name == REVIEW_GROUP:
        return ["v1"]
    return list(dict.fromkeys(kind.version for kind in catalog if kind.group == name))


def _resources(catalog: KindCatalog, group_name: str, version: str) -> list[Object]:
    if (group_name, version) == (REVIEW_GROUP, "v1"):
        return [_REVIEW]
    return [_aggregated_resource(kind) for kind in catalog if (kind.group, kind.version) == (group_name, version)]


def _aggregated_resource(kind: ResourceKind) -> Object:
    resource: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _VERBS if kind.schema is None else _CUSTOM_VERBS,
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if kind.subresources:
        resource["subresources"] = [_subresource(kind, name) for name in sorted(kind.subresources)]
    return resource


def _subresource(kind: ResourceKind, name: str) -> Object:
    response = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if name == "scale":
        response = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return {"subresource": name, "responseKind": response, "verbs": _SUBRESOURCE_VERBS}


def _plain(resource: Object, group_name: str, version: str) -> Iterable[Object]:
    namespaced = resource["scope"] == "Namespaced"
    entry = {
        "name": resource["resource"],
        "singularName": resource["singularResource"],
        "namespaced": namespaced,
        "kind": resource["responseKind"]["kind"],
        "verbs": resource["verbs"],
    }
    yield entry | {name: resource[name] for name in ("shortNames", "categories") if name in resource}
    for below in resource.get("subresources", ()):
        response = below["responseKind"]
        elsewhere = (response["group"], response["version"]) != (group_name, version)
        yield {
            "name": f"{resource['resource']}/{below['subresource']}",
            "singularName": "",
            "namespaced": namespaced,
            **({"group": response["group"], "version": response["version"]} if elsewhere else {}),
            "kind": response["kind"],
            "verbs": below["verbs"],
        }
