"""What a broker remembers of partitions that it gives away."""

from dataclasses import replace

import pytest

from headrace.core.log.sealed import DamagedFileError, seal
from headrace.core.replication.giving_away import (
    GIVING_AWAY_FILE,
    format_giving_away,
    given_away,
    noted,
    parse_giving_away,
)
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, PartitionEpoch, PartitionId, PartitionKey, TopicUid
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
    assert noted({}, ME, [at(3, removing=(ME,))], ()) == {KEY: 3}
    assert noted({KEY: PartitionEpoch(3)}, ME, [at(4, removing=(ME,))], {KEY}) == {KEY: 3}
    assert noted({}, ME, [at(3, removing=(OTHER,))], {KEY}) == {}


def test_should_forget_what_is_to_stay_and_what_is_deleted() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert noted(notes, ME, [at(4)], {KEY}) == {}
    assert noted(notes, ME, [at(4, replicas=(OTHER,))], {KEY}) == notes
    assert noted(notes, ME, [], {KEY}) == notes
    assert noted(notes, ME, [at(4, replicas=(OTHER,))], ()) == {}


def test_should_believe_nothing_that_is_older_than_the_note() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert given_away(notes, [at(4, replicas=(OTHER,))]) == {KEY}
    assert given_away(notes, [at(3, replicas=(OTHER,))]) == set()
    assert given_away({}, [at(4, replicas=(OTHER,))]) == set()


def test_should_be_read_as_it_was_written() -> None:
    notes = {KEY: PartitionEpoch(3), PartitionKey(TopicUid("u"), PartitionId(7)): PartitionEpoch(0)}
    assert parse_giving_away(format_giving_away(notes)) == notes
    with pytest.raises(DamagedFileError, match="are not rows"):
        parse_giving_away(seal(GIVING_AWAY_FILE, ["u x 1"]))
