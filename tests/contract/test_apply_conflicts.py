"""Server-side apply of what belongs to others: who is named, what force takes, and what kubectl may change."""

import json

from tests.support.api_objects import topic
from tests.support.api_server import Space
from tests.support.applying import PARTITIONS, applied, apply, owned_by

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def test_should_say_what_is_in_conflict(space: Space) -> None:
    created = await applied(space, topic(labels={"a": "b"}, retention={"time": "1h"}), "team")
    path = space.path("topics", "flights")
    answer = await apply(space, path, topic(partitions=4), "other")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "team": .spec.partitions'
    wanted = topic(labels={"a": "c"}, partitions=4, retention={"time": "2h"})
    answer = await apply(space, path, wanted, "other")
    fields = (".metadata.labels.a", ".spec.partitions", ".spec.retention.time")
    listed = "".join(f"\n- {field}" for field in fields)
    assert answer.message == f'Apply failed with 3 conflicts: conflicts with "team":{listed}'
    assert answer.causes == {(field, "FieldManagerConflict", 'conflict with "team"') for field in fields}
    assert await space.read("topics", "flights") == created


async def test_should_list_the_conflicts_with_each_manager(space: Space) -> None:
    await applied(space, topic(), "team")
    path = space.path("topics", "flights")
    await space.api.merge(path, {"spec": {"partitions": 5}}, {"fieldManager": "upgrader"})
    await applied(space, topic(partitions=5), "again")
    answer = await apply(space, path, topic(partitions=6), "other")
    assert answer.message == (
        'Apply failed with 2 conflicts: conflicts with "again":\n- .spec.partitions\n'
        'conflicts with "upgrader" using headrace.io/v1alpha1:\n- .spec.partitions'
    )


async def test_should_take_fields_by_force(space: Space) -> None:
    await applied(space, topic(retention={"time": "1h"}), "team")
    taken = await applied(space, topic(partitions=4), "other", force="true")
    assert taken["spec"]["partitions"] == 4
    assert owned_by(taken) == {
        ("other", "Apply", ""): PARTITIONS,
        ("team", "Apply", ""): {"f:spec": {"f:retention": {"f:time": {}}}},
    }


async def test_should_own_a_whole_object_that_had_no_managers(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    reset = await space.api.merge(path, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in reset.body["metadata"]
    changed = await space.api.merge(path, {"metadata": {"labels": {"a": "b"}}}, {"fieldManager": "m"})
    assert "managedFields" not in changed.body["metadata"]
    refused = await apply(space, path, topic(partitions=4), "team")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using headrace.io/v1alpha1: .spec.partitions'
    )
    owned = owned_by(await applied(space, topic(), "team"))
    assert owned["team", "Apply", ""] == PARTITIONS
    assert owned["before-first-apply", "Update", ""]["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}


async def test_should_let_kubectl_change_what_it_applied_on_the_client_side(space: Space) -> None:
    obj = topic("before", minInsyncReplicas=1)
    obj["metadata"]["annotations"] = {_LAST_APPLIED: json.dumps(obj)}
    manager = {"fieldManager": "kubectl-client-side-apply"}
    await space.api.request("POST", space.path("topics"), obj, query=manager)
    path = space.path("topics", "before")
    refused = await apply(space, path, topic("before", partitions=4, replicas=5), "kubectl")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using headrace.io/v1alpha1: '
        ".spec.replicas"
    )
    assert (await apply(space, path, topic("before", partitions=4), "other")).status == 409
    done = await apply(space, path, topic("before", partitions=4, cleanupPolicy="Delete"), "kubectl")
    assert (done.status, done.body["spec"]["partitions"]) == (200, 4)
    said = done.body["metadata"]["annotations"][_LAST_APPLIED]
    assert (
        said
        == json.dumps(topic("before", partitions=4, cleanupPolicy="Delete"), separators=(",", ":"), sort_keys=True)
        + "\n"
    )
