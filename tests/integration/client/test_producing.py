"""What is sent is written: every field, every partitioner, every kind of column, whatever the size."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from headrace.core.errors import (
    BatchTooLargeError,
    LocalError,
    UnknownPartitionError,
    UnknownTopicError,
)
from headrace.core.murmur2 import partition_for_key
from headrace.http2.blocking_connection import H2_READS_BEFORE_CALLERS_READ
from tests.support.client_bench import Bench
from tests.support.patience import patient
from tests.support.waiting import wait_for

KEYS = [f"N{number:05}" for number in range(40)]


def test_should_keep_every_field_of_a_record(bench: Bench) -> None:
    bench.create()
    with bench.producer() as producer:
        sent = [
            producer.send(bench.topic, "ü", "key", headers=[("a", "1"), ("a", None)], timestamp_ms=1_700_000_000_000),
            producer.send(bench.topic, None, b"\xff"),
            producer.send(bench.topic, b"", b""),
        ]
        assert [future.result(patient(30)) for future in sent] == [(bench.topic, 0, offset) for offset in range(3)]
    first, tombstone, empty = bench.read_all()
    assert first == (bench.topic, 0, 0, 1_700_000_000_000, b"key", "ü".encode(), (("a", b"1"), ("a", None)))
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"\xff", None, ())
    assert (empty.key, empty.value) == (b"", b"")
    assert tombstone.timestamp_ms > 1_700_000_000_000


def test_should_put_keys_where_kafka_does_and_keep_their_order(bench: Bench) -> None:
    bench.create(partitions=3)
    with bench.producer(linger_ms=1) as producer:
        for number in range(2_000):
            producer.send(bench.topic, str(number), KEYS[number % len(KEYS)])
    records = bench.read_all()
    assert len(records) == 2_000
    seen: dict[bytes, list[int]] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        assert record.partition == partition_for_key(record.key, 3)
        seen.setdefault(record.key, []).append(int(record.value))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_should_spread_records_without_keys(bench: Bench) -> None:
    bench.create(partitions=3)
    with bench.producer() as producer:
        for _ in range(500):
            producer.send(bench.topic, b"x" * 1_000)
    assert {record.partition for record in bench.read_all()} == {0, 1, 2}


def test_should_write_to_the_partition_that_is_given_or_chosen_by_the_user(bench: Bench) -> None:
    bench.create(partitions=3)
    with bench.producer(partitioner=lambda topic, key, value, partitions: len(value) % partitions) as producer:
        assert producer.send(bench.topic, "four", "key").result(patient(30)).partition == 1
        assert producer.send(bench.topic, "four", "key", partition=2).result(patient(30)).partition == 2
        (written,) = producer.send_batch(bench.topic, values=["1", "4444"]).result(patient(30))
        assert (written.partition, written.record_count) == (1, 2)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_should_write_columns_by_key(bench: Bench, compression: Any) -> None:
    bench.create(partitions=3)
    keys = [None if number % 7 == 0 else KEYS[number % len(KEYS)] for number in range(5_000)]
    values = pa.array([f"value {number}" for number in range(5_000)])
    with bench.producer(compression=compression) as producer:
        written = producer.send_batch(bench.topic, values=values, keys=keys, timestamps_ms=pa.array(range(5_000)))
        assert sum(batch.record_count for batch in written.result(patient(30))) == 5_000
    records = bench.read_all()
    assert sorted((r.value, r.key, r.timestamp_ms) for r in records if r.value is not None and r.key is not None) == (
        sorted((f"value {n}".encode(), key.encode(), n) for n, key in enumerate(keys) if key is not None)
    )
    assert sum(record.key is None for record in records) == keys.count(None)
    assert all(r.partition == partition_for_key(r.key, 3) for r in records if r.key is not None)


@pytest.mark.parametrize("kind", ["list", "table", "series", "category"])
def test_should_write_whatever_columns_users_hold(bench: Bench, kind: str) -> None:
    columns: dict[str, Any] = {
        "list": [b"a", None, "c"],
        "table": pa.table({"v": pa.chunked_array([["a", None], ["c"]])})["v"],
        "series": pd.Series(["a", None, "c"]),
        "category": pd.Series(["a", None, "c"], dtype="category"),
    }
    bench.create()
    with bench.producer() as producer:
        producer.send_batch(bench.topic, values=columns[kind]).result(patient(30))
    assert [record.value for record in bench.read_all()] == [b"a", None, b"c"]


def test_should_take_iterators_piece_by_piece_as_the_buffer_has_room(bench: Bench) -> None:
    bench.create(partitions=2)
    ahead: list[int] = []

    def values() -> Iterator[str]:
        with bench.consumer() as consumer:
            ends = consumer.end_offsets
            for number in range(600):
                if number % 100 == 99:
                    ahead.append(number - sum(ends().values()))
                yield f"{number}".ljust(1_000)

    with bench.producer(batch_bytes=20_000, buffer_bytes=40_000) as producer:
        keys = pa.array([KEYS[number % len(KEYS)] for number in range(600)])
        written = producer.send_batch(bench.topic, values=values(), keys=keys, timestamps_ms=map(int, range(600)))
        assert sum(batch.record_count for batch in written.result(patient(30))) == 600
    assert max(ahead) <= 40 + 10 + 10, "the buffer, a piece, and what the other partition rounds up"
    records = bench.read_all()
    assert sorted(record.timestamp_ms for record in records) == list(range(600))
    for record in records:
        number = record.timestamp_ms
        assert (record.value, record.key) == (f"{number}".ljust(1_000).encode(), KEYS[number % len(KEYS)].encode())


def test_should_send_what_came_before_when_an_iterator_ends_too_early(bench: Bench) -> None:
    bench.create()
    with bench.producer(batch_bytes=8_192, buffer_bytes=8_192) as producer:
        with pytest.raises(ValueError, match="keys ended before values did: give one for each record") as raised:
            producer.send_batch(bench.topic, values=(b"x" * 1_000 for _ in range(10)), keys=iter(["a"] * 9))
        with pytest.raises(ValueError, match="values ended before keys did"):
            producer.send_batch(bench.topic, values=iter(["y"]), keys=["a", "b"])
        with pytest.raises(TypeError, match="keys is one str, not a column of them"):
            producer.send_batch(bench.topic, values=iter(["z"]), keys="abc")
        with pytest.raises(LocalError, match="timestamps_ms in row 1 is -5: it must be milliseconds since"):
            producer.send_batch(bench.topic, values=["a", "b"], timestamps_ms=[0, -5])
    values = [record.value for record in bench.read_all()]
    assert values == [b"x" * 1_000] * 9 + [b"y"]
    said = "send_batch: the first 9 records were queued before this, and no others"
    assert raised.value.__notes__ == [said]


def test_should_write_nothing_when_columns_are_empty(bench: Bench) -> None:
    bench.create()
    with bench.producer() as producer:
        assert producer.send_batch(bench.topic, values=[]).result(patient(30)) == ()


def test_should_split_what_is_larger_than_a_message_may_be(bench: Bench) -> None:
    bench.create(maxMessageBytes="64Ki")
    values = [bytes([65 + number % 26]) * 1_000 for number in range(1_000)]
    with bench.producer() as producer:
        written = producer.send_batch(bench.topic, values=values).result(patient(60))
        assert len(written) > 15
        futures = [producer.send(bench.topic, value) for value in values]
        producer.flush()
        assert wait(futures, timeout=0).not_done == set()
    assert [record.value for record in bench.read_all()] == values * 2


def test_should_refuse_a_record_that_no_batch_can_hold(bench: Bench) -> None:
    bench.create(maxMessageBytes="64Ki")
    zeros = bytes(100_000)
    with bench.producer() as producer:
        with pytest.raises(
            BatchTooLargeError, match=rf"10\d{{4}} bytes .*{bench.topic} takes 65536: split it, or raise"
        ):
            producer.send(bench.topic, zeros)
        with pytest.raises(BatchTooLargeError, match="the record in row 1 takes"):
            producer.send_batch(bench.topic, values=["small", zeros, "small"])
    with bench.producer(compression="zstd") as producer:
        assert producer.send(bench.topic, zeros).result(patient(30)).offset == 0
    assert [record.value for record in bench.read_all()] == [zeros]


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), ("1", 0), (1, 0), ("0", -1), (0, -1)])
def test_should_wait_for_as_much_as_acks_says(bench: Bench, acks: Any, offset: int) -> None:
    bench.create()
    with bench.producer(acks=acks) as producer:
        assert producer.send(bench.topic, "a").result(patient(30)).offset == offset
    with bench.consumer() as consumer:
        assert next(iter(consumer)).value == b"a"


def test_should_keep_sending_when_the_buffer_is_small(bench: Bench) -> None:
    bench.create(partitions=2)
    with bench.producer(batch_bytes=20_000, buffer_bytes=20_000, linger_ms=60_000) as producer:
        futures = [producer.send(bench.topic, b"x" * 1_000) for _ in range(300)]
        producer.send(bench.topic, b"x" * 100_000)
        producer.send_batch(bench.topic, values=[b"y" * 1_000] * 300)
    assert all(future.done() for future in futures)
    assert len(bench.read_all()) == 601


@pytest.mark.parametrize("value", [1, {"a": 1}, ["a"]])
def test_should_name_the_remedy_when_a_value_has_the_wrong_type(bench: Bench, value: Any) -> None:
    with bench.producer() as producer, pytest.raises(TypeError, match=r"value is .* json\.dumps\(value\)"):
        producer.send("any", value)


@pytest.mark.parametrize("wrong", [{"timestamp_ms": "now"}, {"timestamp_ms": 2**70}, {"headers": ["trace"]}])
def test_should_keep_a_record_that_cannot_be_encoded_from_its_neighbours(bench: Bench, wrong: dict[str, Any]) -> None:
    bench.create(partitions=1)
    with bench.producer(linger_ms=10_000) as producer:
        producer.send(bench.topic, "before")
        with pytest.raises((TypeError, LocalError)):
            producer.send(bench.topic, "wrong", **wrong)
        producer.send(bench.topic, "after")
    assert [record.value for record in bench.read_all()] == [b"before", b"after"]


def test_should_name_the_topic_when_it_does_not_exist(bench: Bench) -> None:
    with bench.producer() as producer, pytest.raises(UnknownTopicError, match="no-such-topic"):
        producer.send("no-such-topic", "a")


def test_should_name_the_range_when_a_partition_does_not_exist(bench: Bench) -> None:
    bench.create(partitions=2)
    with bench.producer() as producer, pytest.raises(UnknownPartitionError, match="it has 2, numbered from 0"):
        producer.send(bench.topic, "a", partition=2)
    with pytest.raises(UnknownPartitionError, match="it has 2, numbered from 0"):
        bench.consumer(partitions=[0, 2])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acks": "2"}, "acks is '2': it must be one of all, 1, 0"),
        ({"compression": "gzip"}, "compression is 'gzip': it must be one of none, lz4, zstd"),
        ({"linger_ms": -1}, "linger_ms is -1: it must be at least 0"),
        ({"batch_bytes": 10}, "batch_bytes is 10"),
        ({"buffer_bytes": 10}, "buffer_bytes is 10"),
    ],
)
def test_should_name_the_rule_when_an_option_breaks_it(options: dict[str, Any], says: str) -> None:
    from headrace import Producer

    with pytest.raises(LocalError, match=says):
        Producer("http://127.0.0.1:1", **options)


def test_should_say_so_when_a_producer_is_used_after_its_end(bench: Bench) -> None:
    bench.create()
    producer = bench.producer()
    producer.send(bench.topic, "a")
    producer.close()
    producer.close()
    with pytest.raises(LocalError, match="this producer is closed"):
        producer.send(bench.topic, "b")
    assert len(bench.read_all()) == 1


def in_order(values: Sequence[bytes | None]) -> bool:
    numbers = [int(value) for value in values if value is not None]
    return numbers == sorted(numbers)


def test_should_keep_the_order_of_one_thread_between_send_and_send_batch(bench: Bench) -> None:
    bench.create()
    with bench.producer(linger_ms=2) as producer:
        for start in range(0, 3_000, 300):
            for number in range(start, start + 100):
                producer.send(bench.topic, f"{number}")
            producer.send_batch(bench.topic, values=[f"{n}" for n in range(start + 100, start + 300)])
    values = [record.value for record in bench.read_all()]
    assert len(values) == 3_000
    assert in_order(values)


def test_should_tell_answers_that_nobody_waits_for_after_many_that_were_waited_for(bench: Bench) -> None:
    bench.create()
    with bench.producer(linger_ms=0) as producer:
        # One that waits alone comes to read its answers itself.
        waited = [
            producer.send(bench.topic, str(n)).result(patient(30)).offset
            for n in range(4 * H2_READS_BEFORE_CALLERS_READ)
        ]
        told: list[int] = []
        for number in range(4):
            producer.send(bench.topic, str(number)).add_done_callback(
                lambda future: told.append(future.result().offset)
            )
        wait_for(lambda: len(told) == 4, "callbacks are called")
        with ThreadPoolExecutor(8) as threads:
            shared = threads.map(lambda n: producer.send(bench.topic, str(n)).result(patient(30)).offset, range(80))
            offsets = sorted([*waited, *told, *shared])
    assert offsets == list(range(len(offsets)))


async def test_should_write_to_partitions_that_are_added_later(bench: Bench) -> None:
    bench.create()
    with bench.producer(linger_ms=0, partitioner=last) as blocking:
        async with bench.async_producer(linger_ms=0, partitioner=last) as tasks:
            assert blocking.send(bench.topic, "a").result(patient(30)).partition == 0
            assert (await (await tasks.send(bench.topic, "a"))).partition == 0
            bench.add_partitions(2)
            for client in (blocking, tasks):  # As after a minute.
                client._brokers.directory.forget(bench.topic)
            wait_for(
                lambda: blocking.send(bench.topic, "b").result(patient(30)).partition == 1, "the new partition is used"
            )
            async with asyncio.timeout(patient(30)):
                while (await (await tasks.send(bench.topic, "b"))).partition != 1:
                    pass


def last(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    return partitions - 1
