"""What a broker says of logs that are closed, and what it says when one is opened that may lack something."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.control.broker_reports import HeldLog
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.log.recovery import DiskFacts
from headrace.core.log.segments import LogConfig
from headrace.core.replication.residency import Holding
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import (
    Incarnation,
    LeaderEpoch,
    Offset,
    PartitionId,
    PartitionKey,
    Seat,
    SetUid,
    TopicName,
    TopicUid,
)
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.cluster.reports import LogReports
from headrace_broker.cluster.view import ClusterView
from headrace_broker.metrics import Metrics
from headrace_broker.partition.actions import PartitionActions
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.opening import Opener
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.failing_disk import failing_sync
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.partitions import alone
from tests.support.waiting import eventually

SPEC = TopicSpec.parse({"partitions": 1, "replicas": 3, "durability": "Replicated"})
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
OTHER, ASIDE = (PartitionKey(TopicUid(uid), PartitionId(0)) for uid in ("uid-2", "uid-3"))
ME = seat(0)
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


def actions_on(holdings: Holdings, data: DataDirectory, me: Seat = ME) -> PartitionActions:
    metrics = Metrics()
    facts = DiskFacts(Incarnation(1), Incarnation(1), data.stopped_cleanly, data.same_boot)
    host = alone(metrics, BrokerDisk(data.path, DiskLimits(), metrics, lambda reason: None))
    return PartitionActions(holdings, data, Opener(data, facts, me, host), metrics, lambda: None)


async def test_should_count_what_is_set_aside_by_what_becomes_of_it(data: DataDirectory) -> None:
    kept, unknown = (PartitionKey(TopicUid(f"uid-{number}"), PartitionId(0)) for number in (2, 3))
    put_aside(data)
    put_aside(data, replace(DESCRIPTION, key=kept, spec={**DESCRIPTION.spec, "deletionPolicy": "Retain"}))
    put_aside(data, replace(DESCRIPTION, key=unknown))
    (data.path / "orphaned" / "uid-3-0" / "partition.json").unlink()
    metrics = Metrics()
    await Holdings(data, metrics).load()
    name = "headrace_broker_orphaned_partitions"
    assert metrics.registry.get_sample_value(name, {"deletion_policy": "Delete"}) == 1
    assert metrics.registry.get_sample_value(name, {"deletion_policy": "Retain"}) == 2


async def test_should_read_what_is_set_aside_once_until_something_happens_to_it(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_aside(data)
    holdings = Holdings(data, Metrics())
    await holdings.load()
    reports = LogReports(holdings, ClusterView("headrace"), data)
    read: list[PartitionKey] = []
    last_known = data.store.last_known

    def counted(key: PartitionKey) -> HeldLog:
        read.append(key)
        return last_known(key)

    monkeypatch.setattr(data.store, "last_known", counted)
    assert [(await reports.survey())[KEY].set_aside for _ in range(3)] == [True] * 3
    assert read == [KEY]
    actions = actions_on(holdings, data)
    actions.restore(KEY)
    await eventually(lambda: not actions.is_busy, "it is taken back")
    assert not (await reports.survey())[KEY].set_aside
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


async def test_should_lower_a_checkpoint_above_the_log_once_its_loss_is_written_down(data: DataDirectory) -> None:
    data.open_log(DESCRIPTION, LogConfig.of_topic(SPEC), now_ms=0).close()
    files = PartitionFiles(data.path / "partitions" / f"{KEY.uid}-{KEY.partition}")
    files.write_high_watermark(Offset(7))
    assert data.open_log(DESCRIPTION, LogConfig.of_topic(SPEC), now_ms=0).recovery.cut_below_high_watermark
    assert files.high_watermark() == 7, "nobody has written the loss down yet"
    metrics = Metrics()
    found = DiskFacts(Incarnation(1), Incarnation(1), stopped_cleanly=False, same_boot=True)
    host = alone(metrics, BrokerDisk(data.path, DiskLimits(), metrics, lambda reason: None))
    opened = await Opener(data, found, seat(0, 2), host).open(DESCRIPTION, SPEC, partition_state(leader=seat(1)))
    await opened.partition.close("the test goes on")
    assert opened.damage
    assert files.void_before() == 2
    assert files.high_watermark() == 0, "what is appended next is not committed yet"


async def test_should_tell_replicas_what_the_set_says_that_they_were_opened_for_and_no_other(
    data: DataDirectory,
) -> None:
    holdings = Holdings(data, Metrics())
    actions = actions_on(holdings, data)
    state = partition_state(leader=seat(0))
    first, second = (replace(a_set, metadata=replace(a_set.metadata, uid=uid))
                     for a_set, uid in ((partition_set(state), "first"), (partition_set(state), "second")))  # fmt: skip
    actions.open(DESCRIPTION, SPEC, state, first.uid)
    await eventually(lambda: not actions.is_busy, "it is open")
    assert holdings.opened_for() == {KEY: "first"}
    assert holdings.find_opened_for(first, KEY.partition) is not None
    assert holdings.find_opened_for(second, KEY.partition) is None
    actions.shut(KEY)
    await eventually(lambda: not actions.is_busy, "it is closed")
    assert (holdings.held(), holdings.opened_for()) == ({KEY: Holding.RESTING}, {})
    reports = LogReports(holdings, ClusterView("headrace"), data)
    assert (await reports.survey())[KEY].applied_epoch == NO_EPOCH
    assert holdings.find_opened_for(first, KEY.partition) is None


def left_behind(path: Path, *, clean: bool, booted: bool) -> DataDirectory:
    """Two logs and one that is set aside, as the life before has left them."""
    before = DataDirectory.open(path)
    put_aside(before, replace(DESCRIPTION, key=ASIDE))
    for key in (KEY, OTHER):
        before.open_log(replace(DESCRIPTION, key=key), LogConfig.of_topic(SPEC), now_ms=0).close()
    before.close(clean=clean)
    if booted:
        (path / "boot-id").unlink()
    return DataDirectory.open(path)


class Life:
    """What one has to do with its logs."""

    def __init__(self, data: DataDirectory) -> None:
        self._data = data
        self.holdings = Holdings(data, Metrics())
        self.actions = actions_on(self.holdings, data, seat(0, 2))

    async def open(self, *keys: PartitionKey) -> None:
        for key in keys:
            state = partition_state(leader=seat(0))
            self.actions.open(replace(DESCRIPTION, key=key), SPEC, state, SetUid("set"))
        await self.rest()

    async def rest(self) -> None:
        await eventually(lambda: not self.actions.is_busy, "all is done")

    async def end(self) -> bool:
        closed = await self.actions.close("the life is over")
        self._data.close(clean=closed)
        return closed


@asynccontextmanager
async def life(path: Path, *, clean: bool = False, booted: bool = False) -> AsyncIterator[Life]:
    """After one that has stopped cleanly, or was killed; and the machine has booted since, or not."""
    begun = Life(left_behind(path, clean=clean, booted=booted))
    await begun.holdings.load()
    yield begun


async def test_should_call_no_stop_clean_while_a_log_was_not_opened_that_a_crash_has_left(tmp_path: Path) -> None:
    async with life(tmp_path / "none") as begun:
        assert not await begun.end()
    async with life(tmp_path / "one") as begun:
        await begun.open(KEY)
        assert not await begun.end()
    async with life(tmp_path / "all") as begun:
        await begun.open(KEY, OTHER)
        assert await begun.end(), "what was set aside then was closed before"
    async with life(tmp_path / "clean", clean=True) as begun:
        assert await begun.end(), "there was no crash"
    async with life(tmp_path / "booted", booted=True) as begun:
        assert await begun.end(), "nothing is in memory"


async def test_should_call_no_stop_clean_where_a_log_cannot_be_opened_that_a_crash_has_left(tmp_path: Path) -> None:
    for clean in (False, True):
        async with life(tmp_path / str(clean), clean=clean) as begun:
            (tmp_path / str(clean) / "partitions" / "uid-2-0" / "void-before").mkdir()
            await begun.open(KEY, OTHER)
            assert begun.holdings.held()[OTHER] is Holding.BROKEN
            assert await begun.end() is clean


async def test_should_call_no_stop_clean_where_what_a_crash_has_left_is_set_aside_unopened(tmp_path: Path) -> None:
    async with life(tmp_path / "aside") as begun:
        await begun.open(KEY)
        begun.actions.orphan(OTHER)
        await begun.rest()
        adopted = PartitionKey(TopicUid("uid-4"), PartitionId(0))
        begun.actions.adopt(OTHER, adopted, LeaderEpoch(1))
        await begun.rest()
        assert begun.holdings.held()[adopted] is Holding.RESTING
        assert not await begun.end()
    async with life(tmp_path / "deleted") as begun:
        await begun.open(KEY)
        begun.actions.delete(OTHER)
        await begun.rest()
        assert await begun.end(), "nothing of it is left"


async def test_should_call_no_stop_clean_after_a_log_was_closed_that_its_disk_refused(tmp_path: Path) -> None:
    async with life(tmp_path / "refused", clean=True) as begun:
        await begun.open(KEY, OTHER)
        with failing_sync(tmp_path / "refused" / "partitions" / "uid-2-0" / f"{0:020d}.log"):
            begun.actions.shut(OTHER)
            await begun.rest()
        assert not await begun.end()
