"""What a topic and its sets note of themselves comes out as it went in."""

import pytest

from headrace.core.limits import TOPIC_PARTITIONS_MAX
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Places
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from tests.support.control import topic
from tests.support.partition_sets import partition_set, partition_state, seat

OLD = TopicUid("0f6c0000-1111-2222-3333-444455556666")
ALL = Places(TOPIC_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX)


def test_should_read_how_many_partitions_had_places() -> None:
    noted = topic().noted(Places(3, 9))
    assert topic(metadata={"annotations": noted}).places == Places(3, 9)
    assert topic("other", metadata={"annotations": noted}).places == Places(), "it was copied with the manifest"


@pytest.mark.parametrize(
    "note", ["uid-flights/", "uid-flights/6", "uid-flights/6/x", "uid-flights/-1/6", "uid-flights"]
)
def test_should_take_a_note_that_cannot_be_read_for_all_of_them(note: str) -> None:
    assert topic(metadata={"annotations": {"headrace.io/placed": note}}).places == ALL


def test_should_name_what_its_partitions_were_before() -> None:
    bare = partition_set(*(partition_state(number, leader=seat(0)) for number in range(3)))
    assert (bare.adopted_uid, bare.adopted) == (None, {})
    some = bare.adopting(OLD, [PartitionId(2)]).adopting(OLD, [PartitionId(0)])
    read = PartitionSet.parse(some.to_object())
    assert read.adopted_uid == OLD
    assert read.adopted == {number: PartitionKey(OLD, PartitionId(number)) for number in (0, 2)}
