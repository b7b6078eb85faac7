"""A path becomes a partition, here or elsewhere, or a refusal that says when to come back."""

from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from headrace.core.control.broker_reports import Epochs, HeldLog, PromisedLog
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
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicName,
    TopicUid,
)
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http.proxy import Elsewhere, Proxy
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place
from headrace_broker.serving import Readiness, Serving
from tests.support.partition_sets import partition_set, partition_state, seat

PLACE = Place(TopicName("default", "flights"), PartitionId(0))


class Nothing:
    """No partition is open here."""

    def find(self, key: PartitionKey) -> Partition | None:
        return None

    async def survey(self, uids: Collection[TopicUid] | None = None) -> dict[PartitionKey, HeldLog]:
        return {}

    def remembered(self, uids: Collection[TopicUid] | None = None) -> dict[PartitionKey, LeaderEpoch]:
        return {}

    async def promise(self, asked: Mapping[PartitionKey, Epochs]) -> dict[PartitionKey, PromisedLog]:
        return {}


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """Broker 0, which knows the topic `flights` with one partition, and broker 1."""
    view = ClusterView("headrace")
    spec = TopicSpec.parse({"partitions": 1, "replicas": 1})
    view.list_topics([Topic(Metadata(name="flights", namespace="default", uid="uid-1"), spec)])
    view.list_sets([])
    view.list_leases([BrokerLease(Metadata(name="headrace-broker-1"), BrokerId(1), Incarnation(1), "http://one")], 0)
    async with AsyncTransport() as transport:
        yield Serving(BrokerId(0), view, Nothing(), Proxy(transport), Metrics(), Readiness())


def test_should_sign_with_its_own_life_and_with_none_before(serving: Serving) -> None:
    with pytest.raises(NotReadyError, match="no incarnation yet"):
        serving.seat()
    serving.life = seat(0, 7)
    assert serving.seat() == seat(0, 7)


def test_should_say_who_leads_when_it_is_another(serving: Serving) -> None:
    serving.view.put_set(partition_set(partition_state(leader=seat(1))))
    assert serving.locate(PLACE, Fence()) == Elsewhere(PLACE, BrokerId(1), "http://one")


def test_should_ask_for_patience_when_nobody_serves_the_partition_yet(serving: Serving) -> None:
    with pytest.raises(PartitionOfflineError, match="default/flights/0 is not placed on a broker yet"):
        serving.locate(PLACE, Fence())
    serving.view.put_set(partition_set(partition_state(leader=None)))
    with pytest.raises(PartitionOfflineError, match="has no leader just now"):
        serving.locate(PLACE, Fence())
    serving.view.put_set(partition_set(partition_state(leader=seat(0), partition_epoch=PartitionEpoch(2))))
    with pytest.raises(NotReadyError, match="broker 0 is about to lead default/flights/0"):
        serving.locate(PLACE, Fence())


def test_should_refuse_what_is_not_there(serving: Serving) -> None:
    with pytest.raises(UnknownPartitionError):
        serving.locate(Place(PLACE.topic, PartitionId(1)), Fence())
    with pytest.raises(UnknownTopicError):
        serving.locate(Place(TopicName("default", "x"), PartitionId(0)), Fence())
    with pytest.raises(StaleTopicError):
        serving.locate(PLACE, Fence(TopicUid("uid-0")))


async def test_should_know_nothing_until_the_lists_are_complete(serving: Serving) -> None:
    serving.view = ClusterView("headrace")
    with pytest.raises(NotReadyError, match="does not know its topics yet"):
        serving.locate(PLACE, Fence())


@pytest.mark.parametrize(("url", "why"), [("", "its URL is not known"), ("http://127.0.0.1:1", "cannot be reached")])
async def test_should_name_the_leader_when_it_cannot_be_asked(serving: Serving, url: str, why: str) -> None:
    elsewhere = Elsewhere(PLACE, BrokerId(1), url)
    with pytest.raises(NotLeaderError, match=why) as refused:
        await serving.proxy.send(elsewhere, "GET", "/", headers={}, body=(), timeout_ms=100)
    assert refused.value.details == {"leader": 1, "url": url}
