from typing import Any

import pytest

from headrace.kube.resource import EVENTS, LEASES, PARTITION_SETS, TOPICS, Resource, raw_resource

NODES = raw_resource("", "v1", "nodes", "Node", namespaced=False)


def test_should_build_the_paths_of_a_custom_resource() -> None:
    assert TOPICS.path("data") == "/apis/headrace.io/v1alpha1/namespaces/data/topics"
    assert TOPICS.path("data", "flights") == "/apis/headrace.io/v1alpha1/namespaces/data/topics/flights"
    assert TOPICS.path("data", "flights", "status").endswith("/topics/flights/status")
    assert PARTITION_SETS.path(None) == "/apis/headrace.io/v1alpha1/partitionsets"


def test_should_build_the_paths_of_the_core_group() -> None:
    assert EVENTS.path("data") == "/api/v1/namespaces/data/events"
    assert LEASES.path("data") == "/apis/coordination.k8s.io/v1/namespaces/data/leases"


def test_should_leave_the_namespace_out_when_the_kind_has_none() -> None:
    assert NODES.path("data", "a") == "/api/v1/nodes/a"


def test_should_not_let_a_name_climb_out_of_its_path() -> None:
    assert TOPICS.path("data", "../../secrets").endswith("/topics/..%2F..%2Fsecrets")


@pytest.mark.parametrize(("resource", "version"), [(TOPICS, "headrace.io/v1alpha1"), (EVENTS, "v1")])
def test_should_spell_the_api_version(resource: Resource[Any], version: str) -> None:
    assert resource.api_version == version


def test_should_leave_raw_objects_as_they_are() -> None:
    obj = {"metadata": {"name": "a"}}
    assert NODES.parse(obj) is obj
