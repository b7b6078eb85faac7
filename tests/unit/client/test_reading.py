"""What a consumer reads is complete: a partition that is new is looked up until its beginning is known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from headrace.client.directory import Directory
from headrace.client.discovery import Servers
from headrace.client.reading import Added, Reading
from headrace.client.record import TopicPartition
from headrace.client.trouble import Trouble
from headrace.core.errors import BrokerUnreachableError

P0, P1, P2 = (TopicPartition("flights", number) for number in range(3))
GONE = BrokerUnreachableError("broker a:1 cannot be reached: Connection refused")


@dataclass
class Metadata:
    partitions: int
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        numbered = [{"partition": number, "leaderEpoch": 0} for number in range(self.partitions)]
        return json.dumps({"name": "flights", "uid": "u1", "maxMessageBytes": 9, "partitions": numbered}).encode()


def reading_of_one() -> tuple[Reading, Directory]:
    """Of a topic that had one partition when the reading began, and has three now."""
    directory = Directory(Servers(("http://a:1",)))
    directory.learn("flights", Metadata(1), 0)
    reading = Reading(directory, {P0: 0}, Trouble(), growing=["flights"], timeout_ms=1_000, prefetch_bytes=1)
    assert reading.added() == []
    directory.learn("flights", Metadata(3), 0)
    return reading, directory


def test_should_tell_each_new_partition_once() -> None:
    reading, directory = reading_of_one()
    assert reading.added() == [P1, P2]
    directory.learn("flights", Metadata(3), 0)
    assert reading.added() == []
    for place in (P1, P2):
        reading.take(Added(place, 7), 0)
    assert [cursor.position for cursor in reading.plan.cursors.values()] == [0, 7, 7]


def test_should_look_a_new_partition_up_again_when_its_beginning_was_not_found() -> None:
    reading, _ = reading_of_one()
    assert reading.added() == [P1, P2]
    with pytest.raises(BrokerUnreachableError):
        reading.take(Added(P2, GONE), 0)
    assert reading.added() == [P2]


@pytest.mark.parametrize("interruption", [GONE, KeyboardInterrupt()])
def test_should_look_new_partitions_up_again_when_whoever_did_was_interrupted(interruption: BaseException) -> None:
    reading, _ = reading_of_one()

    def look_up_one() -> None:
        with reading.adding() as new:
            assert new == [P1, P2]
            reading.take(Added(P1, 7), 0)
            raise interruption

    with pytest.raises(type(interruption)):
        look_up_one()
    with reading.adding() as new:
        assert new == [P2]
        reading.take(Added(P2, 7), 0)
    assert reading.added() == []
    assert list(reading.plan.cursors) == [P0, P1, P2]
