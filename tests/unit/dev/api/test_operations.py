"""The operations and the collector without HTTP: a store in memory, a clock of its own."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.dev.api.collector import Collector
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.listing import ListOptions
from headrace.dev.api.objects import GroupResource, Key, Object, copy_of
from headrace.dev.api.operations import Operations, RequestTarget
from headrace.dev.api.pods import read_scale
from headrace.dev.api.server import bootstrap
from headrace.dev.api.status import StatusError
from headrace.dev.api.store import ChangeType, Store
from headrace.dev.api.strategy import ApiWriteOptions, DeleteOptions, Propagation
from headrace.dev.crds import load_crds
from tests.support.api_objects import event, partition_set, topic
from tests.support.examples import examples

_START = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
_TOPICS = GroupResource("headrace.io", "topics")


class Clock:
    def __init__(self) -> None:
        self.now = _START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def operations(clock: Clock) -> Iterator[Operations]:
    store = Store(":memory:")
    made = Operations(store, clock, Random(1))
    bootstrap(made, load_crds())
    yield made
    store.close()


def _kind(operations: Operations, name: str, version: str = "headrace.io/v1alpha1") -> ResourceKind:
    found = operations.catalog.of_kind(version, name)
    assert found is not None
    return found


def _create(operations: Operations, kind: str, obj: Object, version: str = "headrace.io/v1alpha1") -> Object:
    written = operations.create(_kind(operations, kind, version), "default", Document(copy_of(obj)), ApiWriteOptions())
    return written.object


def _target(operations: Operations, name: str = "flights", kind: str = "Topic") -> RequestTarget:
    return RequestTarget(_kind(operations, kind), "default", name)


def test_should_keep_definitions_when_it_starts_again(operations: Operations) -> None:
    revision = operations.store.revision
    bootstrap(operations, load_crds())
    assert operations.store.revision == revision


def test_should_show_new_defaults_on_objects_that_are_there(operations: Operations) -> None:
    before = _create(operations, "Topic", topic())
    newer = load_crds()
    (definition,) = [d for d in newer if d["metadata"]["name"] == "topics.headrace.io"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["tier"] = {"type": "string", "default": "hot"}
    bootstrap(operations, newer)

    after = operations.get(_target(operations))

    assert after["spec"] == before["spec"] | {"tier": "hot"}
    assert after["metadata"] == before["metadata"]


def test_should_not_change_what_it_has_handed_out(operations: Operations) -> None:
    _create(operations, "Topic", topic())
    first = operations.get(_target(operations))
    shown = repr(first)
    operations.patch(
        _target(operations), "application/merge-patch+json", Document({"spec": {"partitions": 9}}), ApiWriteOptions()
    )
    operations.delete(_target(operations), DeleteOptions(propagation=Propagation.FOREGROUND))
    assert repr(first) == shown


def test_should_delete_events_when_they_are_old(operations: Operations, clock: Clock) -> None:
    _create(operations, "Event", event("default", "old"), "v1")
    collector = Collector(operations)
    collector.sweep()
    assert len(operations.store.list(GroupResource("", "events"))) == 1
    clock.now += timedelta(hours=1, seconds=1)
    _create(operations, "Event", event("default", "new"), "v1")
    collector.sweep()
    assert [e["metadata"]["name"] for e in operations.store.list(GroupResource("", "events"))] == ["new"]


def test_should_leave_dependents_of_owners_that_it_cannot_know(operations: Operations) -> None:
    obj = partition_set()
    obj["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u"}]
    _create(operations, "PartitionSet", obj)
    Collector(operations).sweep()
    assert operations.get(_target(operations, "flights-0", "PartitionSet"))


def test_should_keep_dependents_while_one_owner_is_left(operations: Operations) -> None:
    owners = [_create(operations, "Topic", topic(name)) for name in ("a", "b")]
    obj = partition_set()
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": o["apiVersion"], "kind": o["kind"], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    _create(operations, "PartitionSet", obj)
    collector = Collector(operations)
    operations.delete(_target(operations, "a"), DeleteOptions())
    collector.sweep()
    assert operations.get(_target(operations, "flights-0", "PartitionSet"))
    operations.delete(_target(operations, "b"), DeleteOptions())
    collector.sweep()
    with pytest.raises(StatusError, match="not found"):
        operations.get(_target(operations, "flights-0", "PartitionSet"))


def test_should_say_what_a_namespace_waits_for_when_it_is_being_deleted(operations: Operations, clock: Clock) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "data"}}
    operations.create(_kind(operations, "Namespace", "v1"), "", Document(namespace), ApiWriteOptions())
    for number in range(2):
        held = topic(f"flights-{number}")
        held["metadata"] |= {"namespace": "data", "finalizers": ["headrace.io/delete-data"]}
        operations.create(_kind(operations, "Topic"), "data", Document(held), ApiWriteOptions())
    where, collector = RequestTarget(_kind(operations, "Namespace", "v1"), "", "data"), Collector(operations)
    operations.delete(where, DeleteOptions())
    collector.sweep()
    first = operations.get(where)["status"]
    assert first["phase"] == "Terminating"
    told = {each["type"]: (each["status"], each["reason"], each["message"]) for each in first["conditions"]}
    assert told == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: topics.headrace.io has 2 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: headrace.io/delete-data in 2 resource instances",
        ),
    }
    revision, clock.now = operations.store.revision, clock.now + timedelta(minutes=1)
    collector.sweep()
    assert operations.store.revision == revision, "it says so already"

    for number in range(2):
        key = Key(_TOPICS, "data", f"flights-{number}")
        freed = copy_of(operations.store.get(key) or {})
        freed["metadata"].pop("finalizers")
        operations.settle(key, freed)
        if not number:
            collector.sweep()
            one_left = {each["type"]: each for each in operations.get(where)["status"]["conditions"]}
            assert one_left["NamespaceContentRemaining"]["message"].endswith("has 1 resource instances")
            before = {each["type"]: each["lastTransitionTime"] for each in first["conditions"]}
            assert {kind: each["lastTransitionTime"] for kind, each in one_left.items()} == before
    collector.sweep()
    with pytest.raises(StatusError, match="not found"):
        operations.get(where)


def test_should_store_nothing_on_a_dry_run_of_a_deletion(operations: Operations) -> None:
    _create(operations, "Topic", topic())
    operations.delete(_target(operations), DeleteOptions(dry_run=True))
    assert operations.get(_target(operations))


@pytest.mark.parametrize(
    ("kind", "version", "obj"),
    [
        ("Pod", "v1", {"spec": 5}),
        ("Pod", "v1", {"spec": {"containers": [{"name": "a"}]}, "status": []}),
        ("Namespace", "v1", {"spec": "x"}),
        ("Lease", "coordination.k8s.io/v1", {"spec": True}),
        ("StatefulSet", "apps/v1", {"spec": [1]}),
        ("Event", "v1", {"involvedObject": 1.5}),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", {"spec": 5}),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", {"spec": {"names": "x"}}),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", {"spec": {"versions": [5]}}),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", {"spec": {"versions": [{"schema": 5}]}}),
    ],
)
def test_should_refuse_members_that_must_be_objects(
    operations: Operations, kind: str, version: str, obj: Object
) -> None:
    written = Document({"metadata": {"name": "a"}, **obj})
    with pytest.raises(StatusError, match="json: cannot unmarshal") as refused:
        operations.create(_kind(operations, kind, version), "default", written, ApiWriteOptions())
    assert refused.value.code == 400


def test_should_take_null_for_a_member_that_is_not_there(operations: Operations) -> None:
    created = _create(operations, "Lease", {"metadata": {"name": "a"}, "spec": None}, "coordination.k8s.io/v1")
    assert created["spec"] == {}


@pytest.mark.parametrize("scale", [5, {"spec": 5}, {"metadata": []}])
def test_should_refuse_what_is_no_scale(scale: object) -> None:
    with pytest.raises(StatusError, match="cannot be handled as a Scale") as refused:
        read_scale(scale)
    assert refused.value.code == 400


def test_should_refuse_a_page_after_nonsense(operations: Operations) -> None:
    with pytest.raises(StatusError, match="invalid continue token"):
        operations.list(_kind(operations, "Topic"), "default", ListOptions(after="nonsense"))


class Writers(RuleBasedStateMachine):
    """Any interleaving of writes: a watcher who applies every change ends with the state, versions only rise."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = Operations(Store(":memory:"), Clock(), Random(1))
        bootstrap(self.operations, load_crds())
        self.kind = _kind(self.operations, "Topic")
        self.seen = self.operations.store.revision
        self.replica: dict[str, Object] = {}

    def _try(self, action: Any) -> None:
        with suppress(StatusError):
            action()

    @rule(name=st.sampled_from("abc"), held=st.booleans())
    def create(self, name: str, held: bool) -> None:
        obj = topic(name)
        if held:
            obj["metadata"]["finalizers"] = ["headrace.io/x"]
        self._try(lambda: self.operations.create(self.kind, "default", Document(obj), ApiWriteOptions()))

    @rule(name=st.sampled_from("abc"), partitions=st.integers(0, 6), stale=st.booleans())
    def replace(self, name: str, partitions: int, stale: bool) -> None:
        target = RequestTarget(self.kind, "default", name)
        current = self.operations.store.get(target.key)
        if current is None:
            return
        obj = copy_of(current)
        obj["spec"]["partitions"] = partitions
        if stale:
            obj["metadata"]["resourceVersion"] = "1"
        self._try(lambda: self.operations.replace(target, Document(obj), ApiWriteOptions()))

    @rule(name=st.sampled_from("abc"), patch=st.sampled_from([{"finalizers": None}, {"labels": {"a": "b"}}]))
    def patch(self, name: str, patch: Object) -> None:
        target = RequestTarget(self.kind, "default", name)
        document = Document({"metadata": patch})
        self._try(lambda: self.operations.patch(target, "application/merge-patch+json", document, ApiWriteOptions()))

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        self._try(lambda: self.operations.delete(RequestTarget(self.kind, "default", name), DeleteOptions()))

    @invariant()
    def watcher_sees_the_state(self) -> None:
        for change in self.operations.store.history.of(_TOPICS).since(self.seen):
            assert change.revision > self.seen
            assert change.object["metadata"]["resourceVersion"] == str(change.revision)
            self.seen = change.revision
            name = change.object["metadata"]["name"]
            if change.type is ChangeType.DELETED:
                del self.replica[name]
            else:
                assert (change.type is ChangeType.ADDED) == (name not in self.replica)
                self.replica[name] = change.object
        stored = {obj["metadata"]["name"]: obj for obj in self.operations.store.list(_TOPICS)}
        assert self.replica == stored
        assert self.seen <= self.operations.store.revision

    def teardown(self) -> None:
        self.operations.store.close()


TestWriters = Writers.TestCase
TestWriters.settings = settings(examples(0.4), stateful_step_count=20)


def test_should_read_back_what_was_written(tmp_path: Any) -> None:
    store = Store(tmp_path / "state")
    key = Key(_TOPICS, "default", "a")
    stored = store.put(key, {"metadata": {"name": "a", "uid": "u"}})
    revision = store.revision
    store.close()
    again = Store(tmp_path / "state", first_revision=99)
    assert (again.get(key), again.revision, again.key_of_uid("u")) == (stored, revision, key)
    again.close()
