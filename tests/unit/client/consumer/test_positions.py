"""A partition is a number where it is clear of which topic, or a TopicPartition, which names its topic."""

from typing import Any

import pytest

from headrace.client.consumer.options import wanted_partitions
from headrace.client.consumer.positions import Positions
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.client.transport.errands import BrokerErrands
from headrace.client.transport.retry import Trouble
from headrace.core.errors import LocalError

FLIGHTS, TRAINS = TopicPartition("flights", 0), TopicPartition("trains", 1)


class Reader(Positions):
    """Of partitions that are there, without brokers."""

    _errands: BrokerErrands = NotImplemented

    def _connect(self, server: Any, namespace: str | None, ca_file: str | None) -> None:
        directory = Directory(Servers(("http://a:1",)))
        self._reading = ReadAhead(
            directory, {FLIGHTS: 5, TRAINS: 7}, Trouble(), growing=(), timeout_ms=1_000, prefetch_bytes=1
        )

    def paused(self) -> list[TopicPartition]:
        return [place for place, cursor in self._cursors.items() if cursor.paused]


def test_should_take_a_partition_with_its_topic_where_a_partition_is_asked_for() -> None:
    reader = Reader("flights", "trains")
    assert (reader.position(FLIGHTS), reader.position(TRAINS), reader.position(1, topic="trains")) == (5, 7, 7)
    reader.pause(TRAINS)
    assert reader.paused() == [TRAINS]
    reader.resume(TRAINS)
    assert reader.paused() == []


@pytest.mark.parametrize(
    ("partition", "topic", "error", "sentence"),
    [
        (0, None, LocalError, "reads flights, trains: say which with topic=, or a TopicPartition"),
        (FLIGHTS, "trains", LocalError, "flights/0 is no partition of trains: leave out topic="),
        (TopicPartition("ships", 0), None, LocalError, "does not read ships/0; it reads flights/0, trains/1"),
        ("0", "flights", TypeError, "partition is str: give its number, or a TopicPartition"),
    ],
)
def test_should_say_which_partitions_there_are(
    partition: Any, topic: str | None, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        Reader("flights", "trains").position(partition, topic=topic)


def test_should_read_the_partitions_that_are_listed_with_their_topics() -> None:
    assert wanted_partitions(["flights", "trains"], [TRAINS, FLIGHTS]) == {"flights": [0], "trains": [1]}
    assert wanted_partitions(["flights"], [2, FLIGHTS, 2]) == {"flights": [0, 2]}


@pytest.mark.parametrize(
    ("topics", "partitions", "error", "sentence"),
    [
        (["flights"], FLIGHTS, TypeError, "partitions is one TopicPartition: give a list of them"),
        (["flights"], 3, TypeError, "partitions is one number: give a list of them"),
        (["flights"], [], LocalError, "partitions is empty"),
        (["flights"], [TRAINS], LocalError, "trains/1 is no partition of flights: name its topic too"),
        (["flights", "trains"], [TRAINS], LocalError, "partitions has none of flights"),
        (["flights", "trains"], [1], LocalError, "given as a mapping, .* or as TopicPartitions"),
    ],
)
def test_should_say_what_is_wrong_with_a_list_of_partitions(
    topics: list[str], partitions: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        wanted_partitions(topics, partitions)
