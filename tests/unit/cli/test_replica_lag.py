"""How far replicas are behind, from what brokers told."""

from headrace.cli.replica_lag import lags
from headrace.core.control.broker_reports import BrokerReport, HeldLog
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicUid,
)

UID = TopicUid("uid")


def report(broker: int, end: int | None) -> BrokerReport:
    logs = {} if end is None else {PartitionKey(UID, PartitionId(0)): HeldLog(LeaderEpoch(1), Offset(end))}
    return BrokerReport(Seat(BrokerId(broker), Incarnation(1)), {}, logs)


def reports(*ends: tuple[int, int | None]) -> dict[BrokerId, BrokerReport]:
    return {BrokerId(broker): report(broker, end) for broker, end in ends}


def state(leader: int | None, *replicas: int) -> PartitionState:
    seat = None if leader is None else Seat(BrokerId(leader), Incarnation(1))
    brokers = tuple(BrokerId(broker) for broker in replicas)
    return PartitionState(PartitionId(0), seat, LeaderEpoch(1), PartitionEpoch(1), brokers, ())


def test_should_count_what_followers_have_yet_to_get() -> None:
    assert lags(UID, state(1, 0, 1, 2), reports((0, 7), (1, 10), (2, 12))) == {0: 3, 2: 0}


def test_should_not_know_of_those_that_did_not_answer_or_hold_nothing() -> None:
    assert lags(UID, state(1, 0, 1, 2), reports((0, None), (1, 10))) == {0: None, 2: None}
    assert lags(UID, state(1, 0, 1), reports((0, 10))) == {0: None}
    assert lags(UID, state(None, 0, 1), reports((0, 10), (1, 10))) == {0: None, 1: None}


def test_should_have_nobody_to_tell_of_where_the_leader_is_the_only_replica() -> None:
    assert lags(UID, state(0, 0), {}) == {}
