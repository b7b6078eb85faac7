"""Few Events, however many partitions a broker takes with it."""

from typing import Any

from headrace.core.control.actions import ChangeKind, Notice, PatchStatus, ReplaceSet
from headrace.core.types import BrokerId
from tests.support.control import broker, brokers, topic
from tests.support.replicated import ReplicatedCluster


def cluster_of(partitions: int = 3, **spec: Any) -> ReplicatedCluster:
    cluster = ReplicatedCluster.of([topic(partitions=partitions, replicas=3, **spec)], brokers(3))
    cluster.settle()
    return cluster


def only_write(cluster: ReplicatedCluster) -> ReplaceSet:
    (write,) = cluster.api.plan()
    assert isinstance(write, ReplaceSet)
    return write


def heard(cluster: ReplicatedCluster) -> list[Notice]:
    """In the next passes, while the brokers do nothing."""
    notices: list[Notice] = []
    for _ in range(3):
        for action in cluster.plan():
            assert isinstance(action, ReplaceSet | PatchStatus)
            notices += action.notices
    return notices


def test_should_tell_of_all_elections_with_one_cause_at_once() -> None:
    cluster = cluster_of(partitions=90)
    cluster.lose(BrokerId(1))
    write = only_write(cluster)
    listed = "1, 4, 7, 10, 13, 16, 19, 22, 25, 28 and 20 more"
    message = f"partitions {listed}: leader 1@1 is gone; led by brokers 0, 2 now"
    assert write.notices == (Notice("LeaderElected", message),)
    assert [write.kinds.count(kind) for kind in (ChangeKind.ELECTED, ChangeKind.SHRUNK)] == [30, 90]


def test_should_tell_why_leaders_move() -> None:
    cluster = cluster_of()
    cluster.drain(BrokerId(1))
    assert heard(cluster) == [Notice("LeaderMoved", "partition 1: broker 1 drains; led by broker 0 now")]
    cluster.api.brokers[BrokerId(1)] = broker(1)
    returned = "partition 1: the preferred leader is in sync; led by broker 1 now"
    assert heard(cluster) == [Notice("LeaderReturned", returned)]


def test_should_warn_once_of_what_unclean_elections_lose() -> None:
    cluster = cluster_of(minInsyncReplicas=1, uncleanLeaderElection=True)
    for number in (1, 2):
        cluster.lose(BrokerId(number))
        cluster.settle()
    cluster.lose(BrokerId(0))
    cluster.start(BrokerId(1))
    (notice,) = only_write(cluster).notices
    assert (notice.reason, notice.warning) == ("UncleanLeaderElection", True)
    assert notice.message.startswith("partitions 0, 1, 2: 1@2 was elected although it was not in sync")


def test_should_leave_it_to_the_conditions_to_say_what_is_offline() -> None:
    cluster = cluster_of()
    for number in range(3):
        cluster.lose(BrokerId(number))
    assert {*only_write(cluster).kinds} == {ChangeKind.OFFLINE}
    assert [notice.reason for notice in heard(cluster)] == ["PartitionsOffline"]


def test_should_tell_when_replicas_begin_to_lag_and_when_they_have_caught_up() -> None:
    cluster = cluster_of()
    cluster.lose(BrokerId(2))
    lagging = Notice(
        "ReplicasNotInSync", "partitions 0, 1, 2: a replica is not in sync, that of broker 2", warning=True
    )
    elected = Notice("LeaderElected", "partition 2: leader 2@1 is gone; led by broker 0 now")
    assert heard(cluster) == [elected, lagging]
    cluster.start(BrokerId(2))
    cluster.catch_up()
    returned = Notice("LeaderReturned", "partition 2: the preferred leader is in sync; led by broker 2 now")
    assert heard(cluster) == [returned, Notice("AllReplicasInSync", "every replica is in sync")]


def test_should_tell_when_replicas_begin_to_move_and_when_all_have() -> None:
    cluster = cluster_of(partitions=1)
    cluster.api.brokers[BrokerId(3)] = broker(3)
    cluster.leave(BrokerId(2))
    moving = [notice.reason for notice in heard(cluster)]
    cluster.catch_up()
    settled = [notice.reason for notice in heard(cluster)]
    assert (moving, settled) == (["ReplicasNotInSync", "Reassigning"], ["AllReplicasInSync", "Reassigned"])
