"""What a broker remembers of partitions that it gives away."""

from dataclasses import replace

import pytest

from headrace.core.log.checkpoints import DamagedFileError, seal
from headrace.core.replication.residency import (
    GIVING_AWAY_FILE,
    format_giving_away,
    given_away,
    moved_in_sight,
    noted_removals,
    parse_giving_away,
    seen_leaving,
)
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, SetUid, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
ME, OTHER = BrokerId(0), BrokerId(1)
STATE = partition_state(leader=seat(1), replicas=(OTHER, ME))


def at(
    epoch: int, *, replicas: tuple[BrokerId, ...] = (OTHER, ME), removing: tuple[BrokerId, ...] = ()
) -> PartitionSet:
    epochs = PartitionEpoch(epoch)
    return partition_set(replace(STATE, partition_epoch=epochs, replicas=replicas, removing=removing))


def test_should_note_when_it_is_first_to_be_removed() -> None:
    assert noted_removals({}, ME, [at(3, removing=(ME,))], ()) == {KEY: 3}
    assert noted_removals({KEY: PartitionEpoch(3)}, ME, [at(4, removing=(ME,))], {KEY}) == {KEY: 3}
    assert noted_removals({}, ME, [at(3, removing=(OTHER,))], {KEY}) == {}


def test_should_forget_what_is_to_stay_and_what_is_deleted() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert noted_removals(notes, ME, [at(4)], {KEY}) == {}
    assert noted_removals(notes, ME, [at(4, replicas=(OTHER,))], {KEY}) == notes
    assert noted_removals(notes, ME, [], {KEY}) == notes
    assert noted_removals(notes, ME, [at(4, replicas=(OTHER,))], ()) == {}


def test_should_believe_nothing_that_is_older_than_the_note() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert given_away(notes, [at(4, replicas=(OTHER,))]) == {KEY}
    assert given_away(notes, [at(3, replicas=(OTHER,))]) == set()
    assert given_away({}, [at(4, replicas=(OTHER,))]) == set()


def led_in(leader_epoch: int, moved: PartitionSet) -> PartitionSet:
    (state,) = moved.partitions
    return partition_set(replace(state, leader_epoch=LeaderEpoch(leader_epoch)))


def test_should_see_a_move_that_the_same_leader_ends_and_nothing_that_recover_wrote() -> None:
    leaving = seen_leaving({}, ME, [led_in(7, at(3, removing=(ME,)))], ())
    moved, recovered = led_in(7, at(4, replicas=(OTHER,))), led_in(8, at(4, replicas=(OTHER,)))
    assert leaving == {KEY: ("", 7)}
    for a_set, seen in ((moved, {KEY}), (recovered, set())):
        leaving = seen_leaving(leaving, ME, [a_set], ())
        assert moved_in_sight(leaving, [a_set]) == seen


def test_should_see_no_move_in_a_set_that_was_made_anew() -> None:
    leaving = seen_leaving({}, ME, [at(3, removing=(ME,))], ())
    (moved,) = (at(4, replicas=(OTHER,)),)
    anew = replace(moved, metadata=replace(moved.metadata, uid="another"))
    assert moved_in_sight(seen_leaving(leaving, ME, [anew], ()), [anew]) == set()


def test_should_see_no_move_of_what_went_back_nor_of_what_is_to_stay() -> None:
    leaving, removing = {KEY: (SetUid(""), LeaderEpoch(7))}, led_in(7, at(3, removing=(ME,)))
    assert seen_leaving(leaving, ME, [removing], {KEY.uid}) == {}
    assert seen_leaving(leaving, ME, [led_in(7, at(4))], ()) == {}
    assert seen_leaving({}, ME, [led_in(7, at(4, replicas=(OTHER,)))], ()) == {}
    assert seen_leaving(leaving, ME, [], ()) == {}


def test_should_be_read_as_it_was_written() -> None:
    notes = {KEY: PartitionEpoch(3), PartitionKey(TopicUid("u"), PartitionId(7)): PartitionEpoch(0)}
    assert parse_giving_away(format_giving_away(notes)) == notes
    with pytest.raises(DamagedFileError, match="are not rows"):
        parse_giving_away(seal(GIVING_AWAY_FILE, ["u x 1"]))
