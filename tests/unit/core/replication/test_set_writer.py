"""A leader always knows who may be in the ISR and who surely is, whatever becomes of its writes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.replication.isr import Isr
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId
from tests.support.partition_sets import partition_set, partition_state, seat

LEADER, SECOND, THIRD = seat(0), seat(1), seat(2)
ALONE = partition_state(leader=LEADER, replicas=tuple(BrokerId(i) for i in range(3)))
ZERO = PartitionId(0)


def at(version: str, *states: PartitionState) -> PartitionSet:
    found = partition_set(*states)
    return replace(found, metadata=replace(found.metadata, resource_version=version))


def with_isr(*members: int, epoch: int = 1) -> PartitionState:
    return replace(ALONE, isr=tuple(seat(each) for each in members), partition_epoch=PartitionEpoch(epoch))


def test_a_proposed_addition_counts_at_once_for_the_high_watermark_and_not_for_the_floor() -> None:
    isr = Isr(with_isr(0)).proposing(with_isr(0, 1, epoch=2))
    assert isr.maximal == {LEADER, SECOND}
    assert isr.certain == {LEADER}


def test_a_proposed_removal_counts_at_once_for_the_floor_and_not_for_the_high_watermark() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2))
    assert isr.maximal == {LEADER, SECOND}
    assert isr.certain == {LEADER}


def test_attempts_add_up_until_one_of_them_is_decided() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2)).proposing(with_isr(0, 1, 2, epoch=3))
    assert isr.maximal == {LEADER, SECOND, THIRD}
    assert isr.certain == {LEADER}
    assert isr.next_epoch == 4


def test_one_write_is_in_flight_and_its_answer_settles_it() -> None:
    writer = SetWriter(at("7", ALONE))
    put = writer.write([with_isr(0, 1)])
    assert put == at("7", with_isr(0, 1, epoch=2))
    assert writer.write([with_isr(0, 2)]) is None
    writer.landed(at("8", with_isr(0, 1, epoch=2)))
    assert (writer.is_writing, writer.is_undecided) == (False, False)
    assert writer.isr(ZERO).certain == {LEADER, SECOND}
    assert writer.write([]) is None


def test_what_has_no_answer_is_written_again_on_the_same_version() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    assert writer.is_undecided
    assert writer.write([]) == at("7", with_isr(0, epoch=3)), "as it was known, so that one of the two is decided"


def test_a_read_that_shows_the_same_version_decides_nothing() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    writer.read(at("7", ALONE), based_on="7")
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}
    writer.read(at("8", replace(ALONE, leader_epoch=LeaderEpoch(1))), based_on="6")
    assert writer.isr(ZERO).pending, "it began before the version was known"
    writer.read(at("8", ALONE), based_on="7")
    assert writer.isr(ZERO).pending is None
    assert writer.known.metadata.resource_version == "8"


def test_a_watch_that_is_late_decides_nothing() -> None:
    writer = SetWriter(at("7", with_isr(0, epoch=4)))
    writer.write([with_isr(0, 1)])
    writer.seen(at("5", with_isr(0, 2, epoch=3)))
    writer.seen(at("6", with_isr(0, epoch=4)))
    assert writer.isr(ZERO).pending
    writer.seen(at("8", with_isr(0, 1, epoch=5)))
    assert writer.isr(ZERO).pending is None
    assert writer.is_writing, "its answer is still to come"
    writer.landed(at("8", with_isr(0, 1, epoch=5)))
    assert writer.known == at("8", with_isr(0, 1, epoch=5))


def test_partitions_that_are_new_to_the_set_are_known_from_then_on() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.seen(at("8", ALONE, partition_state(1, leader=LEADER)))
    assert writer.isr(PartitionId(1)).certain == {LEADER}


def test_what_has_no_answer_is_read_before_it_is_written_again() -> None:
    writer = SetWriter(at("7", ALONE))
    must_read = [False]

    def note() -> None:
        must_read.append(writer.must_read)

    writer.write([with_isr(0, 1)])
    note()
    writer.unanswered()
    note()
    writer.read(at("7", ALONE), based_on="7")
    note()  # It decided nothing: now the next attempt may.
    writer.write([])
    writer.unanswered()
    writer.seen(at("9", with_isr(0, 1, epoch=5)))
    note()
    assert must_read == [False, False, True, False, False]
    assert not writer.is_undecided


def test_a_write_to_what_is_found_to_be_gone_cannot_land_any_more() -> None:
    writer = SetWriter(at("7", with_isr(0)))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    writer.gone()
    assert (writer.is_undecided, writer.must_read, writer.is_writing) == (False, False, False)


def test_an_older_state_that_is_read_is_not_believed_and_nothing_is_written_upon_it() -> None:
    writer = SetWriter(at("7", with_isr(0, 1, epoch=5)))
    writer.write([with_isr(0)])
    writer.unanswered()
    writer.read(at("3", with_isr(0, epoch=4)), based_on="7")
    assert writer.is_regressed
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}
    assert writer.isr(ZERO).certain == {LEADER}, "what was on its way may have landed before"
    assert writer.write([with_isr(0, 1)]) is None
    writer.seen(at("4", with_isr(0, epoch=5)))
    assert writer.write([]) is None
    writer.seen(at("5", with_isr(0, 2, epoch=6)))
    assert writer.write([with_isr(0)]) is not None
    writer.unanswered()
    writer.read(at("6", with_isr(0, 2, epoch=7)), based_on="5")
    assert writer.isr(ZERO).maximal == {LEADER, THIRD}


def test_another_history_of_the_same_epoch_is_not_believed() -> None:
    writer = SetWriter(at("7", with_isr(0, 1, epoch=5)))
    other = at("9", with_isr(0, 2, epoch=5))
    writer.seen(other)
    assert writer.known.metadata.resource_version == "7"
    writer.read(other, based_on="7")
    assert writer.regressed == {0}
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}


def test_a_set_that_lost_a_partition_or_the_word_of_its_deletion_is_older() -> None:
    two = at("7", ALONE, partition_state(1, leader=LEADER))
    for older in (at("8", ALONE), replace(two, metadata=at("8").metadata)):
        writer = SetWriter(replace(two, deleting=True))
        writer.seen(older)
        assert writer.known.metadata.resource_version == "7"
        writer.read(older, based_on="7")
        assert writer.is_regressed


def test_what_changes_around_the_same_epochs_is_taken_over_while_nothing_depends_on_it() -> None:
    writer = SetWriter(at("7", ALONE))
    deleting = replace(at("8", ALONE), deleting=True)
    writer.write([with_isr(0, 1)])
    writer.seen(deleting)
    assert not writer.known.deleting
    writer.unanswered()
    writer.read(deleting, based_on="7")
    assert writer.known == deleting
    writer.seen(replace(deleting, metadata=at("9").metadata))
    assert writer.known.metadata.resource_version == "9"


def test_should_write_nothing_of_a_topic_that_went_back_for_another_broker() -> None:
    writer = SetWriter(at("7", ALONE))
    assert writer.write([with_isr(0, 1)], regressed=[writer.known.topic_uid]) is None
    assert writer.write([with_isr(0, 1)]) is not None
    writer.unanswered()
    assert writer.write([], regressed=[writer.known.topic_uid]) is None, "not even again"


@dataclass(frozen=True)
class Put:
    based_on: int
    written: PartitionSet


@dataclass
class Read:
    based_on: str
    found: PartitionSet | None = None
    """None until the server has looked."""


class Api:
    """An API server that answers late, or never; writes that land late, or never; a watch that lags; an operator."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.version = 7
        self.stored = at("7", ALONE)
        self.writer = SetWriter(self.stored)
        self.on_the_way: list[Put] = []
        """May land at any time, answered or not."""
        self.watch: deque[PartitionSet] = deque()
        self.reads: list[Read] = []
        self.steps: list[Callable[[], None]] = [
            *[self.write] * 3,
            *[self.arrive] * 3,
            self.arrive_late,
            self.operator_writes,
            self.watch_moves,
            self.read_begins,
            *[self.read_moves] * 2,
        ]

    def step(self) -> None:
        self.random.choice(self.steps)()
        self.check()

    def store(self, written: PartitionSet) -> PartitionSet:
        self.version += 1
        metadata = replace(written.metadata, resource_version=str(self.version))
        self.stored = replace(written, metadata=metadata)
        self.watch.append(self.stored)
        return self.stored

    def land(self, put: Put) -> PartitionSet | None:
        self.on_the_way.remove(put)
        return self.store(put.written) if put.based_on == self.version else None

    def write(self) -> None:
        members = [each for each in (1, 2) if self.random.random() < 0.5]
        put = self.writer.write([with_isr(0, *members)] if self.random.random() < 0.8 else [])
        if put is not None:
            self.on_the_way.append(Put(int(put.metadata.resource_version), put))

    def arrive(self) -> None:
        if not self.writer.is_writing:
            return
        answer = self.random.choice(["200", "lost on the way back", "late", "lost"])
        put = self.on_the_way[-1]
        landed = self.land(put) if answer in ("200", "lost on the way back") else None
        if answer == "lost":
            self.on_the_way.remove(put)
        if answer == "200" and landed is not None:
            self.writer.landed(landed)
        else:
            self.writer.unanswered()

    def arrive_late(self) -> None:
        """Of attempts that are given up already; the present one has `arrive`."""
        late = self.on_the_way[:-1] if self.writer.is_writing else self.on_the_way
        if late:
            self.land(self.random.choice(late))

    def operator_writes(self) -> None:
        """It takes members out, or changes something else of the set."""
        state = self.stored.partitions[0]
        taken = replace(state, isr=state.isr[:1], partition_epoch=PartitionEpoch(state.partition_epoch + 1))
        self.store(self.stored.with_partitions(taken) if self.random.random() < 0.5 else self.stored)

    def watch_moves(self) -> None:
        if self.watch:
            self.writer.seen(self.watch.popleft())

    def read_begins(self) -> None:
        self.reads.append(Read(self.writer.known.metadata.resource_version))

    def read_moves(self) -> None:
        """First the server looks, then, any time later, the answer is there."""
        if not self.reads:
            return
        read = self.random.choice(self.reads)
        if read.found is None:
            read.found = self.stored
        else:
            self.reads.remove(read)
            self.writer.read(read.found, based_on=read.based_on)

    def check(self) -> None:
        isr = self.writer.isr(ZERO)
        may_land = [put.written for put in self.on_the_way if put.based_on == self.version]
        for possible in (self.stored, *may_land):
            state = possible.partitions[0]
            assert set(state.isr) <= isr.maximal, "somebody is not waited for"
            if self.stored.partitions[0].partition_epoch == self.writer.known.partitions[0].partition_epoch:
                assert isr.certain <= set(state.isr), "somebody is counted who may be out"


@pytest.mark.parametrize("block", range(4))
def test_whatever_becomes_of_writes_reads_and_the_watch(block: int) -> None:
    for seed in range(block * 500, block * 500 + 500):
        api = Api(Random(seed))
        for _ in range(60):
            api.step()


@given(st.lists(st.frozensets(st.sampled_from([1, 2])), max_size=6))
def test_epochs_of_attempts_only_rise(wishes: list[frozenset[int]]) -> None:
    writer, epochs = SetWriter(at("7", ALONE)), [1]
    for members in wishes:
        put = writer.write([with_isr(0, *sorted(members))])
        assert put is not None
        epochs.append(put.partitions[0].partition_epoch)
        writer.unanswered()
    assert epochs == list(range(1, len(wishes) + 2))
