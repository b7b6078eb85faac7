"""The kinds of Kubernetes itself that Headrace leans on: Lease, Event, Pod, StatefulSet, Namespace."""

import pytest

from tests.support.api_objects import event, lease, pod, stateful_set, topic
from tests.support.api_server import Space

_STAMP = "2026-11-21T09:00:00.000000Z"
_STRATEGIC = "application/strategic-merge-patch+json"


async def test_should_keep_a_lease_as_its_holder_writes_it(space: Space) -> None:
    created = await space.create("leases", lease(holderIdentity="3", leaseDurationSeconds=10, renewTime=_STAMP))
    assert created["spec"] == {"holderIdentity": "3", "leaseDurationSeconds": 10, "renewTime": _STAMP}
    assert "generation" not in created["metadata"]

    created["spec"]["holderIdentity"] = "4"
    renewed = await space.api.request("PUT", space.path("leases", "headrace-broker-0"), created)
    assert (renewed.status, renewed.body["spec"]["holderIdentity"]) == (200, "4")
    stale = await space.api.request("PUT", space.path("leases", "headrace-broker-0"), created)
    assert (stale.status, stale.reason) == (409, "Conflict")


async def test_should_create_a_lease_that_is_replaced_before_it_exists(space: Space) -> None:
    answer = await space.api.request("PUT", space.path("leases", "new"), lease("new", holderIdentity="1"))
    assert answer.status == 201


@pytest.mark.parametrize("stamp", ["2026-11-21T09:00:00Z", "yesterday"])
async def test_should_want_microseconds_in_the_times_of_a_lease(space: Space, stamp: str) -> None:
    answer = await space.api.request("POST", space.path("leases"), lease(renewTime=stamp))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(
        f'Lease in version "v1" cannot be handled as a Lease: parsing time "{stamp}" as '
        '"2006-01-02T15:04:05.000000Z07:00": '
    )


async def test_should_bring_the_times_of_a_lease_to_utc(space: Space) -> None:
    created = await space.create("leases", lease(renewTime="2026-11-21T10:00:00.123456+01:00"))
    assert created["spec"]["renewTime"] == "2026-11-21T09:00:00.123456Z"


async def test_should_refuse_a_lease_that_lasts_no_time(space: Space) -> None:
    answer = await space.api.request("POST", space.path("leases"), lease(leaseDurationSeconds=0))
    assert answer.causes == {
        ("spec.leaseDurationSeconds", "FieldValueInvalid", "Invalid value: 0: must be greater than 0")
    }


async def test_should_find_the_events_of_an_object(space: Space) -> None:
    await space.create("events", event(space.name, reason="A"))
    other = event(space.name, reason="B")
    other["involvedObject"]["name"] = "other"
    await space.create("events", other)
    selector = f"involvedObject.name=flights,involvedObject.namespace={space.name},involvedObject.uid=u"
    answer = await space.api.get(space.path("events"), {"fieldSelector": selector})
    assert [item["reason"] for item in answer.body["items"]] == ["A"]

    answer = await space.api.get(space.path("events"), {"fieldSelector": "involvedObject.foo=x"})
    assert answer.message == "field label not supported: involvedObject.foo"


async def test_should_refuse_an_event_about_another_namespace(space: Space) -> None:
    elsewhere = event("default", "e1")
    answer = await space.api.request("POST", space.path("events"), elsewhere)
    assert answer.causes == {
        ("involvedObject.namespace", "FieldValueInvalid", 'Invalid value: "default": does not match event.namespace')
    }


async def test_should_show_an_event_in_both_of_its_forms(space: Space) -> None:
    stamp = "2026-11-21T09:00:00Z"
    await space.create("events", event(space.name, "e1", message="m", count=3, firstTimestamp=stamp))
    view = await space.api.get(f"/apis/events.k8s.io/v1/namespaces/{space.name}/events/e1")
    assert view.body["apiVersion"] == "events.k8s.io/v1"
    assert view.body["note"] == "m"
    assert view.body["regarding"]["name"] == "flights"
    assert view.body["deprecatedCount"] == 3
    assert view.body["deprecatedFirstTimestamp"] == stamp


async def test_should_take_an_event_in_the_newer_form(space: Space) -> None:
    newer = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e2"},
        "regarding": {"kind": "Topic", "name": "flights", "namespace": space.name},
        "reason": "R",
        "note": "m",
        "type": "Normal",
        "eventTime": _STAMP,
        "reportingController": "headrace.io/operator",
        "reportingInstance": "i",
        "action": "Place",
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{space.name}/events"
    assert (await space.api.request("POST", path, newer)).status == 201
    core = await space.read("events", "e2")
    assert (core["apiVersion"], core["message"], core["reportingComponent"]) == ("v1", "m", "headrace.io/operator")
    assert core["involvedObject"]["name"] == "flights"


async def test_should_start_a_pod_as_pending_whatever_its_writer_says(space: Space) -> None:
    created = await space.create("pods", pod() | {"status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    assert created["spec"]["terminationGracePeriodSeconds"] == 30
    assert created["spec"]["restartPolicy"] == "Always"


async def test_should_want_containers_in_a_pod(space: Space) -> None:
    empty = pod()
    empty["spec"] = {"containers": []}
    answer = await space.api.request("POST", space.path("pods"), empty)
    assert ("spec.containers", "FieldValueRequired", "Required value") in answer.causes


async def test_should_delete_a_running_pod_in_two_steps(space: Space) -> None:
    await space.create("pods", pod(nodeName="node0"))
    path = space.path("pods", "headrace-0")

    first = await space.api.request("DELETE", path)
    assert first.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert first.body["metadata"]["deletionTimestamp"]
    assert (await space.api.get(path)).status == 200

    last = await space.api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    assert last.body["kind"] == "Pod"
    assert (await space.api.get(path)).status == 404


async def test_should_delete_a_pod_at_once_when_nothing_runs_it(space: Space) -> None:
    await space.create("pods", pod())
    assert (await space.api.request("DELETE", space.path("pods", "headrace-0"))).body["kind"] == "Pod"
    assert (await space.api.get(space.path("pods", "headrace-0"))).status == 404


async def test_should_select_pods_by_node(space: Space) -> None:
    await space.create("pods", pod(nodeName="node0"))
    answer = await space.api.get(space.path("pods"), {"fieldSelector": "spec.nodeName=node0"})
    assert len(answer.body["items"]) == 1
    answer = await space.api.get(space.path("pods"), {"fieldSelector": "spec.nodeName=node1"})
    assert answer.body["items"] == []


async def test_should_scale_a_stateful_set(space: Space) -> None:
    created = await space.create("statefulsets", stateful_set(replicas=3))
    path = space.path("statefulsets", "headrace", "scale")

    scale = (await space.api.get(path)).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 0, "selector": "app=headrace"}
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]

    scale["spec"]["replicas"] = 5
    assert (await space.api.request("PUT", path, scale)).body["spec"] == {"replicas": 5}
    assert (await space.api.request("PUT", path, scale)).status == 409
    assert (await space.api.merge(path, {"spec": {"replicas": 4}})).body["spec"] == {"replicas": 4}
    scaled = await space.read("statefulsets", "headrace")
    assert (scaled["spec"]["replicas"], scaled["metadata"]["generation"]) == (4, 3)


async def test_should_refuse_a_negative_scale(space: Space) -> None:
    await space.create("statefulsets", stateful_set())
    answer = await space.api.merge(space.path("statefulsets", "headrace", "scale"), {"spec": {"replicas": -1}})
    assert answer.message == (
        'Scale.autoscaling "headrace" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


async def test_should_fill_in_the_defaults_of_a_stateful_set(space: Space) -> None:
    created = await space.create("statefulsets", stateful_set())
    assert created["spec"]["replicas"] == 1
    assert created["spec"]["podManagementPolicy"] == "OrderedReady"
    assert created["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert created["status"] == {"replicas": 0, "availableReplicas": 0}


async def test_should_merge_the_lists_of_its_own_kinds_by_their_keys(space: Space) -> None:
    await space.create("pods", pod())
    patch = {
        "metadata": {"finalizers": ["headrace.io/x"]},
        "spec": {"containers": [{"name": "broker", "image": "newer"}]},
    }
    answer = await space.api.request("PATCH", space.path("pods", "headrace-0"), patch, content_type=_STRATEGIC)
    assert [(c["name"], c["image"]) for c in answer.body["spec"]["containers"]] == [("broker", "newer")]
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]
    path = space.path("pods", "headrace-0", "status")
    await space.api.request("PATCH", path, {"status": {"conditions": conditions}}, content_type=_STRATEGIC)
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    answer = await space.api.request("PATCH", path, change, content_type=_STRATEGIC)
    assert {c["type"]: c["status"] for c in answer.body["status"]["conditions"]} == {
        "Ready": "False",
        "Initialized": "True",
    }
    unheld = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["headrace.io/x"]}}
    answer = await space.api.request("PATCH", space.path("pods", "headrace-0"), unheld, content_type=_STRATEGIC)
    assert "finalizers" not in answer.body["metadata"]


async def test_should_name_a_namespace_by_a_label_and_refuse_bad_names(space: Space) -> None:
    found = (await space.api.get(f"/api/v1/namespaces/{space.name}")).body
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": space.name}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}

    bad = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "Bad_Name"}}
    answer = await space.api.request("POST", "/api/v1/namespaces", bad)
    assert answer.message.startswith(
        'Namespace "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 label must'
    )


async def test_should_refuse_new_objects_in_a_namespace_that_ends(space: Space) -> None:
    held = topic()
    held["metadata"]["finalizers"] = ["headrace.io/x"]
    await space.create("topics", held)

    answer = await space.api.request("DELETE", f"/api/v1/namespaces/{space.name}")
    assert answer.body["status"]["phase"] == "Terminating"
    answer = await space.api.request("POST", space.path("topics"), topic("late"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'topics.headrace.io "late" is forbidden: unable to create new content in namespace {space.name} because it '
        "is being terminated"
    )
    await space.api.merge(space.path("topics", "flights"), {"metadata": {"finalizers": None}})


async def test_should_say_no_more_than_that_it_is_not_found_when_what_has_no_scale_is_scaled(space: Space) -> None:
    await space.create("topics", topic())
    answer = await space.api.get(f"{space.path('topics', 'flights')}/scale")
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'topics.headrace.io "flights" not found'


async def test_should_keep_the_namespaces_of_the_system(space: Space) -> None:
    answer = await space.api.request("DELETE", "/api/v1/namespaces/default")
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_should_let_typed_clients_leave_out_the_kind(space: Space) -> None:
    typed = {"metadata": {"name": "typed"}, "spec": {"holderIdentity": "1"}}
    created = await space.create("leases", typed)
    assert (created["apiVersion"], created["kind"]) == ("coordination.k8s.io/v1", "Lease")
