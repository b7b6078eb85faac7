"""What is served: discovery in both forms, OpenAPI, version and health."""

from typing import Any

from tests.support.api_server import Space
from tests.support.kubeconfig import ApiClient

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_should_list_the_versions_of_the_core_group(api: ApiClient) -> None:
    answer = await api.get("/api")
    assert (answer.body["kind"], answer.body["versions"]) == ("APIVersions", ["v1"])


async def test_should_list_the_groups(api: ApiClient) -> None:
    answer = await api.get("/apis")
    groups = {group["name"]: group for group in answer.body["groups"]}
    preferred = {"groupVersion": "headrace.io/v1alpha1", "version": "v1alpha1"}
    assert groups["headrace.io"]["preferredVersion"] == preferred
    assert {"apps", "coordination.k8s.io", "events.k8s.io", "apiextensions.k8s.io"} <= groups.keys()
    assert (await api.get("/apis/headrace.io")).body["preferredVersion"] == preferred


async def test_should_list_the_resources_of_a_version(api: ApiClient) -> None:
    answer = await api.get("/apis/headrace.io/v1alpha1")
    resources = {resource["name"]: resource for resource in answer.body["resources"]}
    assert resources.keys() == {
        "consumergroups",
        "consumergroups/status",
        "partitionsets",
        "topics",
        "topics/status",
    }
    topics = resources["topics"]
    assert (topics["kind"], topics["singularName"], topics["namespaced"]) == ("Topic", "topic", True)
    assert topics["shortNames"] == ["ht"]
    assert topics["categories"] == ["headrace"]
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(topics["verbs"])


async def test_should_say_what_scales(api: ApiClient) -> None:
    answer = await api.get("/apis/apps/v1")
    (scale,) = [r for r in answer.body["resources"] if r["name"] == "statefulsets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def test_should_tell_everything_at_once(api: ApiClient) -> None:
    answer = await api.get("/apis", accept=_AGGREGATED)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert answer.headers["Content-Type"] == _AGGREGATED
    groups: dict[str, Any] = {item["metadata"]["name"]: item for item in answer.body["items"]}
    (version,) = groups["headrace.io"]["versions"]
    topics = next(resource for resource in version["resources"] if resource["resource"] == "topics")
    assert topics["responseKind"] == {"group": "headrace.io", "version": "v1alpha1", "kind": "Topic"}
    assert topics["scope"] == "Namespaced"
    assert [below["subresource"] for below in topics["subresources"]] == ["status"]

    core = await api.get("/api", accept=_AGGREGATED)
    (item,) = core.body["items"]
    assert {"events", "namespaces", "pods"} <= {r["resource"] for r in item["versions"][0]["resources"]}


async def test_should_say_in_openapi_that_the_server_validates_fields(api: ApiClient) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]
    document = (await api.get(index["apis/headrace.io/v1alpha1"]["serverRelativeURL"])).body
    path = "/apis/headrace.io/v1alpha1/namespaces/{namespace}/topics/{name}"
    patch = document["paths"][path]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "headrace.io",
        "version": "v1alpha1",
        "kind": "Topic",
    }
    schema = document["components"]["schemas"]["io.headrace.v1alpha1.Topic"]
    assert schema["properties"]["spec"]["properties"]["partitions"]["maximum"] == 1024


async def test_should_be_ready_and_name_its_version(api: ApiClient) -> None:
    for path in ("/readyz", "/livez", "/healthz"):
        answer = await api.get(path)
        assert (answer.status, answer.text) == (200, "ok")
    version = (await api.get("/version")).body
    assert (version["major"], version["minor"]) == ("1", "36")


async def test_should_allow_what_the_caller_wants_to_do(api: ApiClient) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "group": "headrace.io", "resource": "topics"}},
    }
    answer = await api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


async def test_should_tell_of_the_definitions_it_serves(space: Space) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/topics.headrace.io"
    definition = (await space.api.get(path)).body
    assert definition["spec"]["names"]["listKind"] == "TopicList"
    assert {c["type"]: c["status"] for c in definition["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert definition["status"]["storedVersions"] == ["v1alpha1"]
