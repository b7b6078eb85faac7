"""What groups are told of topics: what is there, what is gone for sure, and nothing where all of it vanished."""

from dataclasses import replace

from headrace.core.groups.events import TopicDeleted
from headrace.core.groups.group_machine import DELETED_TOPICS_REMEMBERED_MAX, TopicsListed, VisibleTopics
from headrace.core.groups.identity import TopicShape
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import TopicUid


def topic(name: str, partitions: int = 1, namespace: str = "default", **spec: object) -> Topic:
    metadata = Metadata(namespace=namespace, name=name, uid=f"uid-{name}")
    return Topic(metadata, TopicSpec.parse({"partitions": partitions, **spec}))


def going(each: Topic) -> Topic:
    return replace(each, metadata=replace(each.metadata, deletion_timestamp="2026-11-21T09:00:00Z"))


def shapes(**topics: int) -> dict[str, TopicShape]:
    return {name: TopicShape(TopicUid(f"uid-{name}"), partitions) for name, partitions in topics.items()}


def deleted(name: str) -> TopicDeleted:
    return TopicDeleted(TopicUid(f"uid-{name}"))


def test_should_tell_each_namespace_once_and_again_when_it_changed() -> None:
    sight = VisibleTopics()
    here, there = topic("flights", 2), topic("orders", namespace="shop")
    assert sight.look([here, there]) == [
        TopicsListed("default", shapes(flights=2)),
        TopicsListed("shop", shapes(orders=1)),
    ]
    assert sight.look([there, here]) == []
    assert sight.look([topic("flights", 3), there]) == [TopicsListed("default", shapes(flights=3))]
    assert sight.all() == [TopicsListed("default", shapes(flights=3)), TopicsListed("shop", shapes(orders=1))]


def test_should_not_tell_that_all_of_a_namespace_vanished() -> None:
    sight = VisibleTopics()
    sight.look([topic("flights"), topic("orders"), topic("bills", namespace="shop")])
    assert sight.look([topic("bills", namespace="shop")]) == []
    assert sight.topics["default"] == shapes(flights=1, orders=1)
    assert sight.look([topic("flights"), topic("bills", namespace="shop")]) == [
        TopicsListed("default", shapes(flights=1))
    ]


def test_should_be_sure_of_a_deletion_that_began_and_is_over() -> None:
    sight = VisibleTopics()
    sight.look([topic("flights"), topic("orders")])
    assert sight.look([going(topic("flights")), topic("orders")]) == []
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1)), deleted("flights")]
    assert sight.all() == [TopicsListed("default", shapes(orders=1)), deleted("flights")]
    assert sight.look([topic("orders")]) == []


def test_should_tell_that_a_namespace_is_empty_when_its_last_topic_was_deleted() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights"))])
    assert sight.look([]) == [TopicsListed("default", {}), deleted("flights")]


def test_should_not_take_retained_data_for_deleted() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights", deletionPolicy="Retain")), topic("orders")])
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1))]


def test_should_not_take_a_topic_for_deleted_whose_deletion_was_undone() -> None:
    """A restored API server has it as it was before."""
    sight = VisibleTopics()
    sight.look([going(topic("flights")), topic("orders")])
    assert sight.look([topic("flights"), topic("orders")]) == []
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1))]


def test_should_not_repeat_a_deletion_that_was_undone_when_it_was_over() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights")), topic("orders")])
    assert deleted("flights") in sight.look([topic("orders")])
    sight.look([topic("flights"), topic("orders")])
    assert sight.all() == [TopicsListed("default", shapes(flights=1, orders=1))], "offsets of it were committed since"


def test_should_remember_the_last_deletions_only() -> None:
    sight = VisibleTopics()
    for number in range(DELETED_TOPICS_REMEMBERED_MAX + 1):
        sight.look([going(topic(f"t{number}")), topic("orders")])
        sight.look([topic("orders")])
    remembered = sight.all()[1:]
    assert len(remembered) == DELETED_TOPICS_REMEMBERED_MAX
    assert remembered[0] == deleted("t1")
