"""A topic that claims the data of another one gets it, whole and alone, or says why not."""

from typing import Any

from headrace.core.control.actions import CreateSet
from headrace.core.control.observed import BrokerState
from headrace.core.control.reclaiming import inquiries
from headrace.core.resources.partition_set import PARTITIONS_PER_SET_MAX
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionId, PartitionKey, TopicName
from tests.support.control import ModelApi, broker, brokers, topic
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.reclaiming import CLAIM, OLD, UID, claiming, hold, log, placed_before, ready, states


def refusal(api: ModelApi) -> str:
    """Why nothing was placed."""
    api.settle()
    assert not api.sets
    reason, message = ready(api)
    assert reason == "AdoptionRefused"
    assert "the data stays where it is" in message
    return message


# Data of another topic


def test_should_go_on_with_the_data_that_a_topic_claims() -> None:
    api = claiming(partitions=2)
    hold(api, 1, 0, log(4, 100), OLD)
    hold(api, 2, 0, log(4, 90), OLD)
    (created,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    adopted, new = created.set.partitions
    assert (adopted.leader, adopted.replicas, adopted.leader_epoch) == (seat(1), (1, 2), 5)
    assert (new.leader_epoch, len(new.replicas)) == (1, 3)
    assert created.set.topic_uid == UID
    assert created.set.adopted == {PartitionId(0): PartitionKey(OLD, PartitionId(0))}
    (notice,) = created.notices
    assert notice.reason == "DataAdopted"
    assert notice.message == f"partition 0: the data of topic uid {OLD} goes on here; led by broker 1 now"
    api.settle()
    assert ready(api) == ("AllPartitionsOnline", "")


def test_should_change_nothing_when_the_claim_goes_or_comes_once_there_are_places() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100), OLD)
    api.settle()
    before, annotations = dict(api.sets), api.topics[UID].metadata.annotations
    api.change(UID, annotations={name: note for name, note in annotations.items() if name not in CLAIM})
    assert api.plan() == []
    api.change(UID, annotations={**annotations, "headrace.io/adopt-uid": OLD.replace("0f6c", "1234")})
    assert api.plan() == []
    assert api.sets == before


def test_should_grow_although_the_claim_is_still_there_and_a_broker_is_away() -> None:
    api = claiming(4)
    hold(api, 1, 0, log(4, 100), OLD)
    api.settle()
    api.held.clear()
    api.brokers[BrokerId(3)] = broker(3, state=BrokerState.LOST)
    api.change(UID, spec={"partitions": 2})
    api.settle()
    assert len(states(api)) == 2
    assert api.sets["flights-0"].adopted_uid == OLD


def test_should_go_on_where_it_died_between_two_sets() -> None:
    count = PARTITIONS_PER_SET_MAX + 2
    api = claiming(partitions=count, replicas=1)
    for partition in range(count - 1):
        hold(api, 1, partition, log(4, 100), OLD)
    marked, first, second = api.plan()
    assert isinstance(second, CreateSet)
    api.carry_out(marked)
    api.carry_out(first)
    hold(api, 1, 0, log(4, 100))  # the broker has renamed what it found in the first
    del api.held[BrokerId(1)][PartitionKey(OLD, PartitionId(0))]
    (again,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    assert again.set.metadata.name == "flights-1"
    assert list(again.set.adopted) == [PARTITIONS_PER_SET_MAX]
    assert [state.leader_epoch for state in again.set.partitions] == [5, 1]


def test_should_wait_until_the_old_topic_is_set_aside_everywhere() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100, set_aside=False), OLD)
    api.settle()
    assert not api.sets
    assert ready(api)[0] == "WaitingForReports"


def test_should_refuse_what_is_no_uid() -> None:
    api = claiming()
    api.change(UID, annotations={"headrace.io/adopt-uid": "../etc"})
    assert "'../etc' is no uid of a topic" in refusal(api)


def test_should_refuse_what_nobody_holds() -> None:
    assert f"no broker holds data of a topic with uid {OLD}" in refusal(claiming())


def test_should_refuse_the_data_of_a_topic_that_lives() -> None:
    api = claiming()
    api.topics[OLD] = topic("other", metadata={"uid": OLD}, cluster="other")
    assert f"topic default/other lives under uid {OLD}" in refusal(api)
    assert inquiries([*api.topics.values()], api.observed) == (UID,), "whatever brokers say, it is not to be had"


def test_should_wait_for_the_topic_whose_data_it_claims_to_be_gone() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100), OLD)
    metadata = {"uid": OLD, "deletion_timestamp": "2026-11-21T09:00:00Z", "finalizers": ("someone/else",)}
    api.topics[OLD] = topic("other", metadata=metadata, cluster="other")
    api.settle()
    reason, message = ready(api)
    assert (reason, api.sets) == ("WaitingForReports", {})
    assert f"topic default/other, which has the data of {OLD}, is still being deleted" in message
    del api.topics[OLD]
    api.settle()
    assert [state.leader_epoch for state in states(api)] == [5]


def test_should_refuse_data_of_another_namespace() -> None:
    api = claiming()
    hold(api, 0, 0, log(1, 5, namespace="theirs"), OLD)
    hold(api, 1, 0, log(1, 5, namespace=""), OLD)
    assert f"the data of {OLD} is of namespace theirs" in refusal(api)


def test_should_refuse_data_with_more_partitions_than_the_topic_asks_for() -> None:
    api = claiming(partitions=2)
    hold(api, 0, 2, log(1, 5), OLD)
    assert f"the data of {OLD} has 3 partitions, and spec.partitions is 2" in refusal(api)
    api.change(UID, spec={"partitions": 3})
    api.settle()
    assert len(states(api)) == 3


def test_should_refuse_two_histories_of_one_partition() -> None:
    api = placed_before()
    api.change(UID, annotations={**api.topics[UID].metadata.annotations, **CLAIM})
    hold(api, 0, 0, log(1, 5))
    hold(api, 1, 0, log(1, 9), OLD)
    assert f"partition 0 has data of this topic and of {OLD}, on broker 0" in refusal(api)
    api.change(UID, annotations={**api.topics[UID].metadata.annotations, "headrace.io/adopt-uid": ""})
    api.settle()
    assert [state.replicas[0] for state in states(api)] == [0]


def test_should_give_data_to_one_topic_only_and_to_the_oldest_that_claims_it() -> None:
    def claimant(name: str, created: str, **metadata: Any) -> Topic:
        fields = {"annotations": CLAIM, "creation_timestamp": created, **metadata}
        return topic(name, metadata=fields, partitions=1)

    older, younger = claimant("b", "2026-11-21T09:00:00Z"), claimant("a", "2026-11-21T10:00:00Z")
    going = claimant("c", "2026-11-20T09:00:00Z", deletion_timestamp="2026-11-21T09:00:00Z")
    api = ModelApi.of([younger, older, going], brokers(1))
    hold(api, 0, 0, log(1, 5), OLD)
    api.settle()
    assert list(api.sets) == ["b-0"]
    api.change("uid-b", annotations={})  # as if it had never been claimed by it
    api.settle()
    assert f"topic default/b has the data of {OLD}" in ready(api, "uid-a")[1]
    assert f"topic {TopicName('default', 'b')}" in ready(api, "uid-a")[1]


def test_should_give_data_away_again_when_the_topic_that_had_it_is_gone() -> None:
    api = claiming(replicas=1)
    hold(api, 0, 0, log(1, 5), OLD)
    left = partition_set(partition_state(leader=seat(1)), topic="gone", uid="uid-gone")
    api.sets["gone-0"] = left.adopting(OLD, [PartitionId(0)])
    api.settle()
    assert "flights-0" in api.sets


def test_should_claim_its_own_uid_in_vain() -> None:
    api = ModelApi.of([topic(metadata={"annotations": {"headrace.io/adopt-uid": UID}})], brokers(1))
    api.settle()
    assert len(states(api)) == 6
