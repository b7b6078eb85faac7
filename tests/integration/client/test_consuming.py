"""What was written is read, from wherever the reader wants, and never twice."""

from datetime import UTC, datetime
from itertools import islice
from threading import Thread

import pyarrow as pa
import pytest

from headrace import Record, TopicPartition
from headrace.client.consumed_records import CONSUMED_SCHEMA
from headrace.core.errors import LocalError, OffsetOutOfRangeError
from tests.support.client_bench import Bench, number
from tests.support.patience import patient


def numbers(records: list[Record]) -> list[int]:
    return [number(record) for record in records]


def test_should_end_at_what_is_there_when_it_does_not_follow(bench: Bench) -> None:
    bench.fill(300, partitions=3)
    assert sorted(numbers(bench.read_all())) == list(range(300))
    assert numbers(bench.read_all(partitions=[1])) == list(range(1, 300, 3))


def test_should_end_at_once_when_there_is_nothing(bench: Bench) -> None:
    bench.create(partitions=2)
    assert bench.read_all() == []


def test_should_hand_out_columns(bench: Bench) -> None:
    bench.fill(1_000, partitions=2, apart_ms=1_000)
    with bench.consumer() as consumer:
        table = pa.Table.from_batches(consumer.batches(follow=False))
    assert table.schema == CONSUMED_SCHEMA
    assert table.num_rows == 1_000
    rows = table.sort_by([("partition", "ascending"), ("offset", "ascending")]).slice(501, 1).to_pylist()
    assert rows == [
        {
            "key": None,
            "value": b"3",
            "timestamp_ms": 3_000,
            "headers": [],
            "topic": bench.topic,
            "partition": 1,
            "offset": 1,
        }
    ]


def test_should_wait_for_new_records_when_it_follows(bench: Bench) -> None:
    bench.fill(3)
    with bench.consumer() as consumer, bench.producer() as producer:
        assert numbers(list(islice(consumer, 3))) == [0, 1, 2]
        sender = Thread(target=lambda: producer.send(bench.topic, "3"))
        sender.start()
        assert next(iter(consumer)).value == b"3"
        sender.join()


def test_should_read_again_what_an_iterator_that_is_still_held_has_left(bench: Bench) -> None:
    bench.create()
    with bench.producer() as producer:
        for number in range(3):  # A batch each, and one answer holds them all.
            producer.send(bench.topic, str(number)).result(patient(30))
    with bench.consumer() as consumer:
        held = consumer.batches()
        assert next(held).column("offset").to_pylist() == [0]
        rest = [offset for batch in consumer.batches(follow=False) for offset in batch.column("offset").to_pylist()]
        assert rest == [1, 2]


def test_should_go_on_where_a_loop_was_left(bench: Bench) -> None:
    bench.fill(100)
    with bench.consumer() as consumer:
        for record in consumer:
            if record.offset == 9:
                break
        assert consumer.position(0) == 10
        assert numbers(list(islice(consumer, 5))) == [10, 11, 12, 13, 14]
        assert numbers(list(consumer.records(follow=False))) == list(range(15, 100))
        assert consumer.position(0) == 100


def test_should_go_on_behind_the_last_record_when_another_reading_begins(bench: Bench) -> None:
    bench.fill(100)
    with bench.consumer() as consumer:
        assert numbers(list(islice(consumer, 5))) == [0, 1, 2, 3, 4]
        batches = list(consumer.batches(follow=False))
        assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(5, 100))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        (40, 40),
        (datetime.fromtimestamp(50, UTC), 50),
        (datetime(1970, 1, 1, 0, 1, 0, 500_000, tzinfo=UTC), 61),
    ],
)
def test_should_start_where_it_is_told(bench: Bench, start: str | int | datetime, first: int) -> None:
    bench.fill(100, apart_ms=1_000)
    assert numbers(bench.read_all(start=start)) == list(range(first, 100))


def test_should_read_only_what_comes_later_when_it_starts_at_the_latest(bench: Bench) -> None:
    bench.fill(10)
    with bench.consumer(start="latest") as consumer, bench.producer() as producer:
        producer.send(bench.topic, "10").result(patient(30))
        assert numbers(list(consumer.records(follow=False))) == [10]


def test_should_go_where_it_is_sought_even_within_a_loop(bench: Bench) -> None:
    bench.fill(100, apart_ms=1_000)
    with bench.consumer() as consumer:
        seen = []
        for record in consumer.records(follow=False):
            seen.append(record.offset)
            if record.offset == 9:
                consumer.seek(0, 90)
        assert seen == [*range(10), *range(90, 100)]
        consumer.seek(0, "earliest")
        assert consumer.position(0) == 0
        consumer.seek(0, "latest")
        assert list(consumer.records(follow=False)) == []
        consumer.seek_to_time(95_000)
        assert numbers(list(consumer.records(follow=False))) == [95, 96, 97, 98, 99]
        consumer.seek_to_time(datetime.fromtimestamp(1_000, UTC))
        assert consumer.position(0) == 100


def test_should_leave_out_partitions_that_are_paused(bench: Bench) -> None:
    bench.fill(300, partitions=3)
    with bench.consumer() as consumer:
        consumer.pause(0, 1)
        assert {record.partition for record in consumer.records(follow=False)} == {2}
        consumer.resume(0)
        seen = []
        for record in consumer.records(follow=False):
            seen.append(record.offset)
            if record.offset == 9:
                consumer.pause(0)
        assert seen == list(range(10))
        consumer.resume()
        rest = list(consumer.records(follow=False))
        assert [r.offset for r in rest if r.partition == 0] == list(range(10, 100))
        assert len(rest) == 190


def test_should_tell_the_ends(bench: Bench) -> None:
    bench.fill(5, partitions=2)
    with bench.consumer() as consumer:
        assert consumer.end_offsets() == {TopicPartition(bench.topic, 0): 3, TopicPartition(bench.topic, 1): 2}
        assert consumer.partitions == [TopicPartition(bench.topic, 0), TopicPartition(bench.topic, 1)]


def test_should_name_the_valid_range_and_go_on_when_an_offset_is_not_there(bench: Bench) -> None:
    bench.fill(10)
    with bench.consumer(start=1_000) as consumer:
        with pytest.raises(OffsetOutOfRangeError, match="1000"):
            next(iter(consumer))
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 1000 .* its next record will have 10"):
            consumer.records(follow=False)
        consumer.seek(0, 8)
        assert numbers(list(consumer.records(follow=False))) == [8, 9]


def test_should_read_several_topics(bench: Bench) -> None:
    other = f"{bench.topic}-other"
    bench.create(partitions=2)
    bench.cluster.create_topic(other)
    with bench.producer() as producer:
        producer.send(bench.topic, "a", partition=1)
        producer.send(other, "b")
    with bench.consumer(bench.topic, other, partitions={bench.topic: [1]}) as consumer:
        assert sorted((r.topic, r.partition, r.value) for r in consumer.records(follow=False)) == [
            (bench.topic, 1, b"a"),
            (other, 0, b"b"),
        ]
        assert consumer.position(0, topic=other) == 1
        with pytest.raises(LocalError, match="say which with topic="):
            consumer.position(0)
        with pytest.raises(LocalError, match="does not read"):
            consumer.seek(0, 0, topic=bench.topic)
    with pytest.raises(LocalError, match="as a mapping"):
        bench.consumer(bench.topic, other, partitions=[0])
    with pytest.raises(LocalError, match="partitions is empty"):
        bench.consumer(partitions=[])


def test_should_read_small_pieces_when_prefetch_is_small(bench: Bench) -> None:
    bench.create()
    with bench.producer(batch_bytes=10_000) as producer:
        producer.send_batch(bench.topic, values=[b"x" * 1_000] * 500).result(patient(30))
    assert [record.offset for record in bench.read_all(prefetch_bytes=1)] == list(range(500))


def test_should_say_so_when_groups_or_topics_are_asked_for_in_vain(bench: Bench) -> None:
    with pytest.raises(LocalError, match="partitions and group are both given"):
        bench.consumer(group="billing", partitions=[0])
    from headrace import Consumer

    with pytest.raises(LocalError, match="no topic is given"):
        Consumer(server=bench.server)
    bench.create()
    for start in ("newest", -1):
        with pytest.raises(LocalError, match="it must be earliest, latest, an offset from 0, or a datetime"):
            bench.consumer(start=start)
    consumer = bench.consumer()
    consumer.close()
    consumer.close()
    with pytest.raises(LocalError, match="this consumer is closed"):
        next(iter(consumer))
