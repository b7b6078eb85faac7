"""Server-side apply: who owns which field, what becomes of fields that are no longer applied, and conflicts."""

import json
from typing import Any

import pytest

from tests.support.kubeconfig import Answer
from tests.support.kubeconfig_objects import pod, secret, service, stateful_set, topic
from tests.support.kubeconfig_space import Space

pytestmark = pytest.mark.contract

_APPLY = "application/apply-patch+yaml"
_JSON = "application/json-patch+json"
_VERSION = "headrace.io/v1alpha1"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_PARTITIONS: dict[str, Any] = {"f:spec": {"f:partitions": {}}}


async def _apply(space: Space, path: str, obj: object, manager: str, **query: str) -> Answer:
    return await space.api.request("PATCH", path, obj, content_type=_APPLY, query={"fieldManager": manager, **query})


async def _applied(space: Space, obj: dict[str, Any], manager: str, **query: str) -> dict[str, Any]:
    answer = await _apply(space, space.path("topics", obj["metadata"]["name"]), obj, manager, **query)
    assert answer.status in (200, 201), answer.text
    return answer.body


def _owned(obj: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """(manager, operation, subresource) -> the fields."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }


def _condition(type_: str, status: str = "True") -> dict[str, str]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": moment}


def _status(*conditions: dict[str, str]) -> dict[str, Any]:
    whole = {"apiVersion": _VERSION, "kind": "Topic", "metadata": {"name": "flights"}}
    return whole | {"status": {"conditions": list(conditions)}}


async def test_should_create_what_is_not_there(space: Space) -> None:
    path = space.path("topics", "flights")
    tried = await _apply(space, path, topic(), "team", dryRun="All")
    assert (tried.status, (await space.api.get(path)).status) == (201, 404)
    answer = await _apply(space, path, topic(), "team")
    assert (answer.status, answer.body["spec"]["partitions"], answer.body["spec"]["replicas"]) == (201, 3, 3)
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry.pop("time") == answer.body["metadata"]["creationTimestamp"]
    identity = {"manager": "team", "operation": "Apply", "apiVersion": _VERSION}
    assert entry == identity | {"fieldsType": "FieldsV1", "fieldsV1": _PARTITIONS}


async def test_should_read_yaml(space: Space) -> None:
    body = b"apiVersion: headrace.io/v1alpha1\nkind: Topic\nmetadata: {name: flights}\nspec:\n  partitions: 4\n"
    answer = await _apply(space, space.path("topics", "flights"), body, "team")
    assert (answer.status, answer.body["spec"]["partitions"]) == (201, 4)


async def test_should_leave_alone_what_is_the_same(space: Space) -> None:
    await _applied(space, topic(), "team")
    changed = await _applied(space, topic(labels={"a": "b"}), "team")
    assert await _applied(space, topic(labels={"a": "b"}), "team") == changed
    assert (await _applied(space, topic(), "team", dryRun="All"))["metadata"].get("labels") is None
    assert await space.read("topics", "flights") == changed


async def test_should_remove_what_its_only_owner_no_longer_applies(space: Space) -> None:
    first = await _applied(space, topic(labels={"a": "b", "c": "d"}, retention={"time": "1h"}), "team")
    assert _owned(first)["team", "Apply", ""]["f:metadata"] == {"f:labels": {"f:a": {}, "f:c": {}}}
    second = await _applied(space, topic(labels={"c": "d"}), "team")
    assert (second["metadata"]["labels"], second["spec"]["retention"]["time"]) == ({"c": "d"}, "7d")
    assert second["metadata"]["generation"] == 2
    assert "labels" not in (await _applied(space, topic(), "team"))["metadata"]


async def test_should_leave_to_others_what_they_own(space: Space) -> None:
    await _applied(space, topic(retention={"time": "1h"}, minInsyncReplicas=2), "team")
    both = await _applied(space, topic(retention={"time": "1h"}), "other")
    assert {manager for manager, _, _ in _owned(both)} == {"team", "other"}
    left = await _applied(space, topic(), "team")
    assert left["spec"]["retention"]["time"] == "1h"
    assert "minInsyncReplicas" not in left["spec"]
    assert _owned(left)["team", "Apply", ""] == _PARTITIONS


async def test_should_leave_alone_what_nobody_owns(space: Space) -> None:
    await _applied(space, topic(labels={"a": "b"}, minInsyncReplicas=2), "team")
    path = space.path("topics", "flights")
    await space.api.merge(path, {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}})
    mine = [{"op": "remove", "path": "/metadata/managedFields/1"}]
    await space.api.request("PATCH", path, mine, content_type=_JSON)
    left = await _applied(space, topic(), "team")
    assert set(_owned(left)) == {("team", "Apply", "")}
    assert left["metadata"]["annotations"] == {"x": "y"}
    # A struct that only the applier had fields in goes with them, whatever else is in it.
    assert "labels" not in left["metadata"]
    assert "minInsyncReplicas" not in left["spec"]


async def test_should_own_nothing_any_more_who_applies_nothing(space: Space) -> None:
    await _applied(space, topic(), "team")
    await _applied(space, topic(labels={"a": "b"}), "labels")
    nothing = {"apiVersion": _VERSION, "kind": "Topic", "metadata": {"name": "flights"}}
    left = await _applied(space, nothing, "labels")
    assert "labels" not in left["metadata"]
    assert set(_owned(left)) == {("team", "Apply", "")}


async def test_should_say_what_is_in_conflict(space: Space) -> None:
    created = await _applied(space, topic(labels={"a": "b"}, retention={"time": "1h"}), "team")
    path = space.path("topics", "flights")
    answer = await _apply(space, path, topic(partitions=4), "other")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "team": .spec.partitions'
    wanted = topic(labels={"a": "c"}, partitions=4, retention={"time": "2h"})
    answer = await _apply(space, path, wanted, "other")
    fields = (".metadata.labels.a", ".spec.partitions", ".spec.retention.time")
    listed = "".join(f"\n- {field}" for field in fields)
    assert answer.message == f'Apply failed with 3 conflicts: conflicts with "team":{listed}'
    assert answer.causes == {(field, "FieldManagerConflict", 'conflict with "team"') for field in fields}
    assert await space.read("topics", "flights") == created


async def test_should_list_the_conflicts_with_each_manager(space: Space) -> None:
    await _applied(space, topic(), "team")
    path = space.path("topics", "flights")
    await space.api.merge(path, {"spec": {"partitions": 5}}, {"fieldManager": "upgrader"})
    await _applied(space, topic(partitions=5), "again")
    answer = await _apply(space, path, topic(partitions=6), "other")
    assert answer.message == (
        'Apply failed with 2 conflicts: conflicts with "again":\n- .spec.partitions\n'
        'conflicts with "upgrader" using headrace.io/v1alpha1:\n- .spec.partitions'
    )


async def test_should_take_fields_by_force(space: Space) -> None:
    await _applied(space, topic(retention={"time": "1h"}), "team")
    taken = await _applied(space, topic(partitions=4), "other", force="true")
    assert taken["spec"]["partitions"] == 4
    assert _owned(taken) == {
        ("other", "Apply", ""): _PARTITIONS,
        ("team", "Apply", ""): {"f:spec": {"f:retention": {"f:time": {}}}},
    }


async def test_should_own_by_update_what_other_writes_change(space: Space) -> None:
    created = await space.api.request(
        "POST", space.path("topics"), topic(labels={"a": "b"}), query={"fieldManager": "c"}
    )
    owned = _owned(created.body)["c", "Update", ""]
    assert owned["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert owned["f:spec"]["f:retention"] == {".": {}, "f:bytes": {}, "f:time": {}}
    path = space.path("topics", "flights")
    merged = await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "m"})
    assert _owned(merged.body)["m", "Update", ""] == _PARTITIONS
    assert "f:partitions" not in _owned(merged.body)["c", "Update", ""]["f:spec"]
    changes = [
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    ]
    patched = await space.api.request("PATCH", path, changes, content_type=_JSON, query={"fieldManager": "j"})
    assert _owned(patched.body)["j", "Update", ""] == {"f:metadata": {"f:labels": {"f:x": {}}}}
    assert _owned(patched.body)["c", "Update", ""]["f:metadata"] == {"f:labels": {}}
    replaced = patched.body | {"spec": patched.body["spec"] | {"partitions": 5}}
    replaced["metadata"].pop("managedFields")
    put = await space.api.request("PUT", path, replaced, query={"fieldManager": "p"})
    assert _owned(put.body)["p", "Update", ""] == _PARTITIONS
    assert ("m", "Update", "") not in _owned(put.body)


async def test_should_record_no_write_that_changes_nothing(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    changed = (await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "m"})).body
    assert (await space.api.merge(path, {"spec": {"partitions": 4}}, {"fieldManager": "other"})).body == changed
    assert (await space.api.request("PUT", path, changed, query={"fieldManager": "p"})).body == changed


async def test_should_name_writers_by_their_program(space: Space) -> None:
    created = await space.create("topics", topic())
    assert [manager for manager, _, _ in _owned(created)] == ["Python"]


async def test_should_keep_the_status_apart(space: Space) -> None:
    await _applied(space, topic(), "team")
    path = space.path("topics", "flights", "status")
    written = await space.api.merge(path, {"status": {"conditions": [_condition("Ready")]}}, {"fieldManager": "op"})
    ready: dict[str, Any] = {f"f:{name}": {} for name in ("lastTransitionTime", "message", "reason", "status")}
    # The condition was there by default; what the operator changed is its own.
    assert _owned(written.body)["op", "Update", "status"]["f:status"] == {"f:conditions": {'k:{"type":"Ready"}': ready}}
    own = await _apply(space, path, _status(_condition("Mine")) | {"spec": {"partitions": 9}}, "me")
    assert (own.status, own.body["spec"]["partitions"]) == (200, 3)
    mine = {".": {}, **ready, "f:type": {}}
    assert _owned(own.body)["me", "Apply", "status"] == {"f:status": {"f:conditions": {'k:{"type":"Mine"}': mine}}}
    assert [condition["type"] for condition in own.body["status"]["conditions"]] == ["Ready", "Mine"]
    refused = await _apply(space, path, _status(_condition("Ready", "False")), "me")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "op" with subresource "status" using headrace.io/v1alpha1: '
        '.status.conditions[type="Ready"].status'
    )
    gone = await _apply(space, path, _status(), "me")
    assert [condition["type"] for condition in gone.body["status"]["conditions"]] == ["Ready"]
    other = space.path("topics", "nothing", "status")
    assert (await _apply(space, other, _status(), "me")).status == 404


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        (["CXA"], "BCXA"),
        (["CXA", "XYA"], "BCXYA"),
        (["ZB"], "AZBC"),
        (["C", "CA"], "BCA"),
    ],
)
async def test_should_order_elements_as_they_are_applied(space: Space, applied: list[str], expected: str) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights", "status")
    await space.api.merge(path, {"status": {"conditions": []}})
    await _apply(space, path, _status(*map(_condition, "ABC")), "first")
    for types in applied:
        answer = await _apply(space, path, _status(*map(_condition, types)), "second")
    found = "".join(condition["type"] for condition in answer.body["status"]["conditions"])
    assert found == expected


async def test_should_share_a_set(space: Space) -> None:
    def with_finalizers(*names: str) -> dict[str, Any]:
        obj = topic()
        obj["metadata"]["finalizers"] = list(names)
        return obj

    await _applied(space, with_finalizers("a.io/x"), "a")
    both = await _applied(space, with_finalizers("b.io/x"), "b")
    assert both["metadata"]["finalizers"] == ["a.io/x", "b.io/x"]
    assert _owned(both)["b", "Apply", ""]["f:metadata"] == {"f:finalizers": {'v:"b.io/x"': {}}}
    assert (await _applied(space, topic(), "a"))["metadata"]["finalizers"] == ["b.io/x"]
    assert "finalizers" not in (await _applied(space, topic(), "b"))["metadata"]


async def test_should_own_a_whole_object_that_had_no_managers(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    reset = await space.api.merge(path, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in reset.body["metadata"]
    changed = await space.api.merge(path, {"metadata": {"labels": {"a": "b"}}}, {"fieldManager": "m"})
    assert "managedFields" not in changed.body["metadata"]
    refused = await _apply(space, path, topic(partitions=4), "team")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using headrace.io/v1alpha1: .spec.partitions'
    )
    owned = _owned(await _applied(space, topic(), "team"))
    assert owned["team", "Apply", ""] == _PARTITIONS
    assert owned["before-first-apply", "Update", ""]["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}


async def test_should_tell_ten_updaters_apart(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    for number in range(12):
        patch = {"metadata": {"labels": {f"l{number:02}": "x"}}}
        answer = await space.api.merge(path, patch, {"fieldManager": f"u{number:02}"})
    updaters = {manager for manager, _, _ in _owned(answer.body)}
    assert len(updaters) == 10
    assert updaters >= {"ancient-changes", "u11"}


async def test_should_let_a_writer_rewrite_the_managers(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    entry: dict[str, Any] = {
        "manager": "x",
        "operation": "Apply",
        "apiVersion": _VERSION,
        "time": "2026-01-01T00:00:00Z",
    }
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": _PARTITIONS}
    replaced = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    answer = await space.api.request("PATCH", path, replaced, content_type=_JSON)
    assert answer.body["metadata"]["managedFields"] == [entry]
    nothing: list[Any] = []
    for nonsense in (nothing, [entry | {"operation": "Nonsense"}], [entry | {"fieldsV1": {"nonsense": {}}}]):
        answer = await space.api.merge(path, {"metadata": {"managedFields": nonsense}})
        assert answer.body["metadata"]["managedFields"] == [entry]
    on_create = topic("other")
    on_create["metadata"]["managedFields"] = [entry]
    created = await space.create("topics", on_create)
    assert [manager for manager, _, _ in _owned(created)] == ["Python"]


async def test_should_let_kubectl_change_what_it_applied_on_the_client_side(space: Space) -> None:
    obj = topic("before", minInsyncReplicas=1)
    obj["metadata"]["annotations"] = {_LAST_APPLIED: json.dumps(obj)}
    manager = {"fieldManager": "kubectl-client-side-apply"}
    await space.api.request("POST", space.path("topics"), obj, query=manager)
    path = space.path("topics", "before")
    refused = await _apply(space, path, topic("before", partitions=4, replicas=5), "kubectl")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using headrace.io/v1alpha1: '
        ".spec.replicas"
    )
    assert (await _apply(space, path, topic("before", partitions=4), "other")).status == 409
    done = await _apply(space, path, topic("before", partitions=4, cleanupPolicy="Delete"), "kubectl")
    assert (done.status, done.body["spec"]["partitions"]) == (200, 4)
    said = done.body["metadata"]["annotations"][_LAST_APPLIED]
    assert (
        said
        == json.dumps(topic("before", partitions=4, cleanupPolicy="Delete"), separators=(",", ":"), sort_keys=True)
        + "\n"
    )


@pytest.mark.parametrize(
    ("query", "field", "reason", "message"),
    [
        ({}, "fieldManager", "FieldValueRequired", "Required value: is required for apply patch"),
        ({"fieldManager": "x" * 129}, "fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes"),
        (
            {"fieldManager": "a\tb"},
            "fieldManager",
            "FieldValueInvalid",
            'Invalid value: "a\\tb": invalid character U+0009 (at position 1)',
        ),
    ],
)
async def test_should_want_a_manager(
    space: Space, query: dict[str, str], field: str, reason: str, message: str
) -> None:
    path = space.path("topics", "flights")
    answer = await space.api.request("PATCH", path, topic(), content_type=_APPLY, query=query)
    assert (answer.status, answer.causes) == (422, {(field, reason, message)})
    assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {field}: {message}'


async def test_should_refuse_force_and_long_names_of_other_writes(space: Space) -> None:
    await space.create("topics", topic())
    path = space.path("topics", "flights")
    answer = await space.api.merge(path, {}, {"force": "true"})
    assert answer.message == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
    )
    for method, place, kind in (("POST", space.path("topics"), "Create"), ("PUT", path, "Update")):
        answer = await space.api.request(method, place, topic(), query={"fieldManager": "x" * 129})
        assert answer.message.startswith(f'{kind}Options.meta.k8s.io "" is invalid: fieldManager: Too long')


def _typed(rule: str) -> tuple[int, str]:
    return 500, f"failed to create typed patch object (/flights; {_VERSION}, Kind=Topic): {rule}"


def _bad(**members: Any) -> dict[str, Any]:
    return topic() | members


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (topic(nonsense=1), _typed(".spec.nonsense: field not declared in schema")),
        (topic(partitions="x"), _typed(".spec.partitions: expected numeric (int or float), got string")),
        (
            topic(partitions={}),
            _typed(".spec.partitions: expected numeric (int or float), got map[string]interface {}"),
        ),
        (topic(retention=[1]), _typed(".spec.retention: expected map, got &{[1]}")),
        (topic(retention="x"), _typed(".spec.retention: expected map, got &{x}")),
        (topic(cluster=1), _typed(".spec.cluster: expected string, got &value.valueUnstructured{Value:1}")),
        (_bad(status={"conditions": {}}), _typed(".status.conditions: expected list, got &{map[]}")),
        (_bad(status={"nonsense": 1}), _typed(".status.nonsense: field not declared in schema")),
        (
            _bad(metadata={"name": "flights", "labels": {"a": 1}}),
            _typed(".metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}"),
        ),
        (
            _bad(metadata={"name": "flights", "finalizers": ["a.io/x", "a.io/x"]}),
            _typed('.metadata.finalizers: duplicate entries for key [="a.io/x"]'),
        ),
        (
            _status(_condition("A"), _condition("A")),
            _typed('.status.conditions: duplicate entries for key [type="A"]'),
        ),
        (
            _status({"status": "True"}),
            _typed(
                ".status.conditions: element 0: associative list with keys has an element that omits all key fields "
                '["type"] (and doesn\'t have default values for any key fields)'
            ),
        ),
        (_bad(kind="ConsumerGroup"), (400, f"invalid object type: {_VERSION}, Kind=ConsumerGroup")),
        (_bad(apiVersion="v1"), (400, "invalid object type: /v1, Kind=Topic")),
        ({"metadata": {}}, (400, "invalid object type: /, Kind=")),
        (b"", (400, "invalid object type: /, Kind=")),
        (
            b"a: [",
            (
                400,
                "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
            ),
        ),
        (
            b"[1]",
            (
                400,
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
                "json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ),
        (
            _bad(metadata={"name": "flights", "managedFields": []}),
            (400, "metadata.managedFields must be nil"),
        ),
        (
            topic("other"),
            (400, "the name of the object (other) does not match the name on the URL (flights)"),
        ),
        (
            _bad(metadata={}),
            (400, "the name of the object (flights based on URL) was undeterminable: name must be provided"),
        ),
        (
            _bad(metadata={"name": "flights", "namespace": "elsewhere"}),
            (400, "the namespace of the provided object does not match the namespace sent on the request"),
        ),
        (
            _bad(metadata={"name": "flights", "uid": "u"}),
            (
                409,
                'Operation cannot be fulfilled on topics.headrace.io "flights": uid mismatch: the provided object '
                "specified uid u, and no existing object was found",
            ),
        ),
    ],
)
async def test_should_say_why_an_object_cannot_be_applied(
    space: Space, body: object, expected: tuple[int, str]
) -> None:
    answer = await _apply(space, space.path("topics", "flights"), body, "team")
    assert (answer.status, answer.message) == expected


async def test_should_check_the_version_that_is_applied(space: Space) -> None:
    await _applied(space, topic(), "team")
    obj = topic(partitions=4)
    obj["metadata"]["resourceVersion"] = "1"
    answer = await _apply(space, space.path("topics", "flights"), obj, "team")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


async def test_should_check_the_rules_of_what_is_applied(space: Space) -> None:
    await _applied(space, topic(), "team")
    answer = await _apply(space, space.path("topics", "flights"), topic(partitions=1), "team")
    assert (answer.status, answer.causes) == (
        422,
        {("spec.partitions", "FieldValueInvalid", "Invalid value: 1: partitions can grow, never shrink")},
    )


async def test_should_take_null_for_a_value(space: Space) -> None:
    path = space.path("topics", "flights")
    answer = await _apply(space, path, topic(minInsyncReplicas=None), "team")
    rule = 'Invalid value: "null": spec.minInsyncReplicas in body must be of type integer: "null"'
    assert ("spec.minInsyncReplicas", "FieldValueTypeInvalid", rule) in answer.causes
    obj = await _applied(space, topic(retention=None), "team")
    assert (obj["spec"]["retention"]["time"], _owned(obj)["team", "Apply", ""]["f:spec"]) == (
        "7d",
        {"f:partitions": {}, "f:retention": {}},
    )


async def test_should_warn_of_names_that_come_twice(space: Space) -> None:
    body = json.dumps(topic()).encode()[:-1] + b', "kind": "Topic"}'
    path = space.path("topics", "flights")
    answer = await _apply(space, path, body, "team")
    assert (answer.status, answer.warnings) == (201, ('299 - "line 1: key \\"kind\\" already set in map"',))
    answer = await _apply(space, path, body, "team", fieldValidation="Strict")
    assert answer.message == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 1: key "kind" already set in map'
    )


async def test_should_apply_the_containers_of_a_pod_each_by_its_name(space: Space) -> None:
    path = space.path("pods", "headrace-0")
    obj = pod(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}])
    created = await _apply(space, path, obj, "team")
    port: dict[str, Any] = {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}
    container = {".": {}, "f:image": {}, "f:name": {}, "f:ports": port}
    assert _owned(created.body)["team", "Apply", ""] == {"f:spec": {"f:containers": {'k:{"name":"c"}': container}}}
    refused = await _apply(space, path, pod(containers=[{"name": "c", "image": "other"}]), "other")
    assert refused.message.endswith('conflict with "team": .spec.containers[name="c"].image')


async def test_should_apply_a_secret_by_its_text(space: Space) -> None:
    path = space.path("secrets", "tls")
    created = await _apply(space, path, secret(stringData={"a": "b"}), "team")
    assert (created.body["data"], _owned(created.body)) == (
        {"a": "Yg=="},
        {("team", "Apply", ""): {"f:stringData": {"f:a": {}}}},
    )
    refused = await _apply(space, path, secret(stringData={"a": "c"}), "other")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "team": .stringData.a'
    wrong = await _apply(space, path, secret(nonsense=1), "team")
    said = "failed to create typed patch object (/tls; /v1, Kind=Secret): .nonsense: field not declared in schema"
    assert wrong.message == said


async def test_should_apply_a_service(space: Space) -> None:
    path = space.path("services", "web")
    created = await _apply(space, path, service(ports=[{"port": 80}], selector={"a": "b"}), "team")
    port: dict[str, Any] = {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert _owned(created.body)["team", "Apply", ""] == {"f:spec": {"f:ports": port, "f:selector": {}}}
    refused = await _apply(space, path, service(ports=[{"port": 80}], selector={"a": "c"}), "other")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "team": .spec.selector'


async def test_should_own_the_replicas_who_scales(space: Space) -> None:
    path = space.path("statefulsets", "headrace")
    await _apply(space, path, stateful_set(replicas=2), "team")
    scaled = await space.api.merge(f"{path}/scale", {"spec": {"replicas": 3}}, {"fieldManager": "scaler"})
    assert scaled.body["spec"] == {"replicas": 3}
    owned = _owned((await space.api.get(path)).body)
    assert owned["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owned["team", "Apply", ""]["f:spec"]
    refused = await _apply(space, path, stateful_set(replicas=2), "team")
    assert refused.message.endswith('conflict with "scaler" with subresource "scale" using apps/v1: .spec.replicas')
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "headrace"}, "spec": {"replicas": 4}}
    applied = await _apply(space, f"{path}/scale", scale, "applier", force="true")
    assert (applied.body["kind"], applied.body["spec"]) == ("Scale", {"replicas": 4})
    assert _owned((await space.api.get(path)).body)["applier", "Apply", "scale"] == {"f:spec": {"f:replicas": {}}}
