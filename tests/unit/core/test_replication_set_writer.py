"""A leader always knows who may be in the ISR and who surely is, whatever becomes of its writes."""

from collections import deque
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
    assert (isr.maximal, isr.certain) == ({LEADER, SECOND}, {LEADER})


def test_a_proposed_removal_counts_at_once_for_the_floor_and_not_for_the_high_watermark() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2))
    assert (isr.maximal, isr.certain) == ({LEADER, SECOND}, {LEADER})


def test_attempts_add_up_until_one_of_them_is_decided() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2)).proposing(with_isr(0, 1, 2, epoch=3))
    assert (isr.maximal, isr.certain) == ({LEADER, SECOND, THIRD}, {LEADER})
    assert isr.next_epoch == 4


def test_one_write_is_in_flight_and_its_answer_settles_it() -> None:
    writer = SetWriter(at("7", ALONE))
    put = writer.write([with_isr(0, 1)])
    assert put == at("7", with_isr(0, 1, epoch=2))
    assert writer.write([with_isr(0, 2)]) is None
    writer.landed(at("8", with_isr(0, 1, epoch=2)))
    assert not writer.is_writing
    assert not writer.is_undecided
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
    assert writer.is_undecided, "it began before the version was known"
    writer.read(at("8", ALONE), based_on="7")
    assert not writer.is_undecided
    assert writer.known.metadata.resource_version == "8"


def test_a_watch_that_is_late_decides_nothing() -> None:
    writer = SetWriter(at("7", with_isr(0, epoch=4)))
    writer.write([with_isr(0, 1)])
    writer.seen(at("5", with_isr(0, 2, epoch=3)))
    writer.seen(at("6", with_isr(0, epoch=4)))
    assert writer.is_undecided
    writer.seen(at("8", with_isr(0, 1, epoch=5)))
    assert not writer.is_undecided
    assert writer.is_writing, "its answer is still to come"
    writer.landed(at("8", with_isr(0, 1, epoch=5)))
    assert writer.known == at("8", with_isr(0, 1, epoch=5))


def test_partitions_that_are_new_to_the_set_are_known_from_then_on() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.seen(at("8", ALONE, partition_state(1, leader=LEADER)))
    assert writer.isr(PartitionId(1)).certain == {LEADER}


@dataclass
class Put:
    based_on: int
    written: PartitionSet


class Api(RuleBasedStateMachine):
    """An API server that answers late, or never; writes that land late, or never; a watch that lags; an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 7
        self.stored = at("7", ALONE)
        self.writer = SetWriter(self.stored)
        self.on_the_way: list[Put] = []
        """May land at any time, answered or not."""
        self.watch: deque[PartitionSet] = deque()
        self.reads: list[tuple[str, PartitionSet | None]] = []

    def store(self, written: PartitionSet) -> PartitionSet:
        self.version += 1
        metadata = replace(written.metadata, resource_version=str(self.version))
        self.stored = replace(written, metadata=metadata)
        self.watch.append(self.stored)
        return self.stored

    @rule(members=st.frozensets(st.sampled_from([1, 2])), wants=st.booleans())
    def write(self, members: frozenset[int], wants: bool) -> None:
        put = self.writer.write([with_isr(0, *sorted(members))] if wants else [])
        if put is not None:
            self.on_the_way.append(Put(int(put.metadata.resource_version), put))

    def land(self, put: Put) -> PartitionSet | None:
        self.on_the_way.remove(put)
        return self.store(put.written) if put.based_on == self.version else None

    @precondition(lambda self: self.on_the_way and self.writer.is_writing)
    @rule(answer=st.sampled_from(["200", "lost on the way back", "late", "lost"]))
    def arrive(self, answer: str) -> None:
        put = self.on_the_way[-1]
        landed = self.land(put) if answer in ("200", "lost on the way back") else None
        if answer == "lost":
            self.on_the_way.remove(put)
        if answer == "200" and landed is not None:
            self.writer.landed(landed)
        else:
            self.writer.unanswered()

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """Of attempts that are given up already; the present one has `arrive`."""
        late = self.on_the_way[:-1] if self.writer.is_writing else self.on_the_way
        if late:
            self.land(data.draw(st.sampled_from(late)))

    @rule(raises=st.booleans())
    def operator_writes(self, raises: bool) -> None:
        """It takes members out, or changes something else of the set."""
        state = self.stored.partitions[0]
        taken = replace(state, isr=state.isr[:1], partition_epoch=PartitionEpoch(state.partition_epoch + 1))
        self.store(self.stored.with_partitions(taken) if raises else self.stored)

    @precondition(lambda self: self.watch)
    @rule()
    def watch_moves(self) -> None:
        self.writer.seen(self.watch.popleft())

    @rule()
    def read_begins(self) -> None:
        self.reads.append((self.writer.known.metadata.resource_version, None))

    @precondition(lambda self: self.reads)
    @rule(data=st.data())
    def read_moves(self, data: st.DataObject) -> None:
        """First the server looks, then, any time later, the answer is there."""
        number = data.draw(st.integers(0, len(self.reads) - 1))
        based_on, found = self.reads.pop(number)
        if found is None:
            self.reads.append((based_on, self.stored))
        else:
            self.writer.read(found, based_on=based_on)

    @invariant()
    def everybody_who_is_or_may_come_to_be_in_sync_is_waited_for(self) -> None:
        maximal = self.writer.isr(ZERO).maximal
        assert set(self.stored.partitions[0].isr) <= maximal
        for put in self.on_the_way:
            if put.based_on == self.version:
                assert set(put.written.partitions[0].isr) <= maximal

    @invariant()
    def only_the_operator_takes_away_from_those_who_are_certain(self) -> None:
        if self.stored.partitions[0].partition_epoch == self.writer.known.partitions[0].partition_epoch:
            assert self.writer.isr(ZERO).certain <= set(self.stored.partitions[0].isr)
            for put in self.on_the_way:
                if put.based_on == self.version:
                    assert self.writer.isr(ZERO).certain <= set(put.written.partitions[0].isr)


TestApi = Api.TestCase


@given(st.lists(st.frozensets(st.sampled_from([1, 2])), max_size=6))
def test_epochs_of_attempts_only_rise(wishes: list[frozenset[int]]) -> None:
    writer, epochs = SetWriter(at("7", ALONE)), [1]
    for members in wishes:
        put = writer.write([with_isr(0, *sorted(members))])
        assert put is not None
        epochs.append(put.partitions[0].partition_epoch)
        writer.unanswered()
    assert epochs == list(range(1, len(wishes) + 2))
