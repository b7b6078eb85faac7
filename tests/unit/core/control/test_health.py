from dataclasses import replace

from headrace.core.control.observed import BrokerState
from headrace.core.control.status import BrokerStanding, Health, standings
from headrace.core.types import BrokerId
from tests.support.control import brokers, topic
from tests.support.replicated import ReplicatedCluster


def health(cluster: ReplicatedCluster) -> Health:
    return Health.of(cluster.api.topics.values(), cluster.api.observed)


def cluster_of() -> ReplicatedCluster:
    topics = [topic("a", partitions=3, replicas=3), topic("b", partitions=2, replicas=1)]
    cluster = ReplicatedCluster.of(topics, brokers(3))
    cluster.settle()
    return cluster


def test_should_find_nothing_where_all_is_well_and_not_look_at_other_clusters() -> None:
    cluster = cluster_of()
    other = topic("c", cluster="other")
    cluster.api.topics[other.uid] = other
    assert health(cluster) == Health(topics=2, partitions=5)


def test_should_count_what_is_not_as_it_should_be() -> None:
    cluster = cluster_of()
    cluster.lose(BrokerId(2))
    cluster.settle(work=False)
    assert health(cluster) == Health(topics=2, partitions=5, under_replicated=3, not_preferred=1)
    cluster.lose(BrokerId(1))
    cluster.settle(work=False)
    assert health(cluster) == Health(
        topics=2, partitions=5, offline=1, under_replicated=4, under_min_isr=4, not_preferred=2
    )


def test_should_count_partitions_that_move() -> None:
    cluster = cluster_of()
    cluster.api.brokers[BrokerId(3)] = replace(cluster.api.brokers[BrokerId(0)], id=BrokerId(3))
    cluster.leave(BrokerId(1))
    cluster.settle(work=False)
    assert health(cluster).reassigning == 4


def test_should_miss_a_broker_that_stopped_only_where_it_is_to_come_back() -> None:
    cluster = cluster_of()
    api = cluster.api
    api.expected = frozenset({BrokerId(0), BrokerId(1)})
    for number in (1, 2):
        cluster.lose(BrokerId(number))
        api.brokers[BrokerId(number)] = replace(api.brokers[BrokerId(number)], clean=True)
    assert standings(api.observed) == {BrokerStanding.READY: 1, BrokerStanding.STOPPED: 1, BrokerStanding.GONE: 1}


def test_should_miss_a_broker_that_was_killed_and_is_to_go_for_as_long_as_it_has_replicas() -> None:
    cluster = cluster_of()
    api = cluster.api
    cluster.lose(BrokerId(2))
    cluster.leave(BrokerId(2))
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 1}
    api.brokers[BrokerId(3)] = replace(api.brokers[BrokerId(0)], id=BrokerId(3), state=BrokerState.LOST)
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 2}
    cluster.leave(BrokerId(3))
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 1, BrokerStanding.GONE: 1}
