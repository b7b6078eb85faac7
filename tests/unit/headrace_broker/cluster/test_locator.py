"""A path becomes a partition, here or elsewhere, or a refusal that says when to come back."""

import pytest

from headrace.core.errors import (
    NotLeaderError,
    NotReadyError,
    PartitionOfflineError,
    StaleTopicError,
    UnknownPartitionError,
    UnknownTopicError,
)
from headrace.core.log.epochs import Fence
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import (
    BrokerId,
    Incarnation,
    PartitionEpoch,
    PartitionId,
    TopicName,
    TopicUid,
)
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.cluster.locator import Elsewhere, Locator
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http.proxy import Proxy
from headrace_broker.partition.queries import Place
from tests.support.components import NoPartitions
from tests.support.partition_sets import partition_set, partition_state, seat

PLACE = Place(TopicName("default", "flights"), PartitionId(0))


@pytest.fixture
def view() -> ClusterView:
    """The topic `flights` with one partition, and broker 1."""
    view = ClusterView("headrace")
    spec = TopicSpec.parse({"partitions": 1, "replicas": 1})
    view.list_topics([Topic(Metadata(name="flights", namespace="default", uid="uid-1"), spec)])
    view.list_sets([])
    view.list_leases([BrokerLease(Metadata(name="headrace-broker-1"), BrokerId(1), Incarnation(1), "http://one")], 0)
    return view


@pytest.fixture
def locator(view: ClusterView) -> Locator:
    """Where broker 0 looks, on which nothing is open."""
    return Locator(BrokerId(0), view, NoPartitions())


def test_should_say_who_leads_when_it_is_another(locator: Locator, view: ClusterView) -> None:
    view.put_set(partition_set(partition_state(leader=seat(1))))
    assert locator.locate(PLACE, Fence()) == Elsewhere(PLACE, BrokerId(1), "http://one")


def test_should_ask_for_patience_when_nobody_serves_the_partition_yet(locator: Locator, view: ClusterView) -> None:
    with pytest.raises(PartitionOfflineError, match="default/flights/0 is not placed on a broker yet"):
        locator.locate(PLACE, Fence())
    view.put_set(partition_set(partition_state(leader=None)))
    with pytest.raises(PartitionOfflineError, match="has no leader just now"):
        locator.locate(PLACE, Fence())
    view.put_set(partition_set(partition_state(leader=seat(0), partition_epoch=PartitionEpoch(2))))
    with pytest.raises(NotReadyError, match="broker 0 is about to lead default/flights/0"):
        locator.locate(PLACE, Fence())


def test_should_refuse_what_is_not_there(locator: Locator) -> None:
    with pytest.raises(UnknownPartitionError):
        locator.locate(Place(PLACE.topic, PartitionId(1)), Fence())
    with pytest.raises(UnknownTopicError):
        locator.locate(Place(TopicName("default", "x"), PartitionId(0)), Fence())
    with pytest.raises(StaleTopicError):
        locator.locate(PLACE, Fence(TopicUid("uid-0")))


def test_should_know_nothing_until_the_lists_are_complete() -> None:
    locator = Locator(BrokerId(0), ClusterView("headrace"), NoPartitions())
    with pytest.raises(NotReadyError, match="does not know its topics yet"):
        locator.locate(PLACE, Fence())


@pytest.mark.parametrize(("url", "why"), [("", "its URL is not known"), ("http://127.0.0.1:1", "cannot be reached")])
async def test_should_name_the_leader_when_it_cannot_be_asked(url: str, why: str) -> None:
    elsewhere = Elsewhere(PLACE, BrokerId(1), url)
    async with AsyncTransport() as transport:
        with pytest.raises(NotLeaderError, match=why) as refused:
            await Proxy(transport).send(elsewhere, "GET", "/", headers={}, body=(), timeout_ms=100)
    assert refused.value.details == {"leader": 1, "url": url}
