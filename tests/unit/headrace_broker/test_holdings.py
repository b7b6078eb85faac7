"""What a broker says of logs that are closed, and what it says when one is opened that may lack something."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.control.held import HeldLog
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.log.intact import DiskFacts
from headrace.core.log.quota import DiskLimits
from headrace.core.log.segments import LogConfig
from headrace.core.replication.residency import Holding
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Incarnation, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.holdings import Holdings
from headrace_broker.metrics import Metrics
from headrace_broker.opening import Opener
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_description import PartitionDescription
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.partitions import alone
from tests.support.waiting import eventually

SPEC = TopicSpec.parse({"partitions": 1, "replicas": 3, "durability": "Replicated"})
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
DESCRIPTION = PartitionDescription(TopicName("default", "flights"), KEY, SPEC.to_object())


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = DataDirectory.open(tmp_path / "data")
    yield opened
    opened.close(clean=False)


def put_aside(data: DataDirectory, description: PartitionDescription = DESCRIPTION) -> None:
    log = data.open_log(description, LogConfig.of_topic(SPEC), now_ms=0)
    log.close()
    data.store.orphan(description.key, 0)


async def test_should_count_what_is_set_aside_by_what_becomes_of_it(data: DataDirectory) -> None:
    kept, unknown = (PartitionKey(TopicUid(f"uid-{number}"), PartitionId(0)) for number in (2, 3))
    put_aside(data)
    put_aside(data, replace(DESCRIPTION, key=kept, spec={**DESCRIPTION.spec, "deletionPolicy": "Retain"}))
    put_aside(data, replace(DESCRIPTION, key=unknown))
    (data.path / "orphaned" / "uid-3-0" / "partition.json").unlink()
    metrics = Metrics()
    await Holdings(data, metrics, lambda: None).load()
    name = "headrace_broker_orphaned_partitions"
    assert metrics.registry.get_sample_value(name, {"deletion_policy": "Delete"}) == 1
    assert metrics.registry.get_sample_value(name, {"deletion_policy": "Retain"}) == 2


async def test_should_read_what_is_set_aside_once_until_something_happens_to_it(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_aside(data)
    holdings = Holdings(data, Metrics(), lambda: None)
    await holdings.load()
    read: list[PartitionKey] = []
    last_known = data.store.last_known

    def counted(key: PartitionKey) -> HeldLog:
        read.append(key)
        return last_known(key)

    monkeypatch.setattr(data.store, "last_known", counted)
    assert [(await holdings.survey())[KEY].set_aside for _ in range(3)] == [True] * 3
    assert read == [KEY]
    holdings.restore(KEY)
    await eventually(lambda: not holdings.is_busy, "it is taken back")
    assert not (await holdings.survey())[KEY].set_aside
    assert read == [KEY, KEY]


async def test_should_tell_what_a_seat_of_this_life_may_lack_that_was_set_aside_before_it(data: DataDirectory) -> None:
    put_aside(data)
    metrics, told = Metrics(), list[tuple[object, ...]]()
    crashed = DiskFacts(Incarnation(1), Incarnation(1), stopped_cleanly=False, same_boot=False)
    host = alone(metrics, BrokerDisk(data.path, DiskLimits(), metrics, lambda reason: None))
    state = partition_state(leader=seat(0, 2))

    async def damage(opener: Opener) -> str:
        opener.warn = lambda *about: told.append(about)
        opened = await opener.open(DESCRIPTION, SPEC, state)
        await opened.partition.close("the test goes on")
        return opened.damage

    opener = Opener(data, crashed, seat(0, 2), host)
    assert "the machine went down" in await damage(opener)
    assert [about[2] for about in told] == ["RecordsMayBeLost"]
    assert await damage(opener) == "", "it was opened in this life"
    data.store.delete(KEY)
    assert await damage(Opener(data, crashed, seat(0, 2), host)) == "", "it begins here"
    assert len(told) == 1


async def test_should_tell_replicas_what_the_set_says_that_they_were_opened_for_and_no_other(
    data: DataDirectory,
) -> None:
    metrics = Metrics()
    holdings = Holdings(data, metrics, lambda: None)
    host = alone(metrics, BrokerDisk(data.path, DiskLimits(), metrics, lambda reason: None))
    opener = Opener(
        data, DiskFacts(Incarnation(1), Incarnation(1), stopped_cleanly=True, same_boot=True), seat(0), host
    )
    state = partition_state(leader=seat(0))
    first, second = (replace(a_set, metadata=replace(a_set.metadata, uid=uid))
                     for a_set, uid in ((partition_set(state), "first"), (partition_set(state), "second")))  # fmt: skip
    holdings.open(DESCRIPTION, SPEC, state, first.uid, opener)
    await eventually(lambda: not holdings.is_busy, "it is open")
    assert holdings.opened_for() == {KEY: "first"}
    assert holdings.find_opened_for(first, KEY.partition) is not None
    assert holdings.find_opened_for(second, KEY.partition) is None
    holdings.shut(KEY)
    await eventually(lambda: not holdings.is_busy, "it is closed")
    assert (holdings.held(), holdings.opened_for()) == ({KEY: Holding.RESTING}, {})
    assert (await holdings.survey())[KEY].applied_epoch == NO_EPOCH
    assert holdings.find_opened_for(first, KEY.partition) is None
