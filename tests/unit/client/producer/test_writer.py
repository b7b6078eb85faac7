"""A producer refuses what it can refuse by itself before it asks a broker.

Explicit, the user's function, the key's hash as Kafka's, else the sticky partition.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.writer import STICKY_BYTES, Partitioner, Partitioning, Writer
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.core.errors import LocalError, UnknownPartitionError
from headrace.core.murmur2 import partition_for_key
from tests.support.client_columns import batch_columns


class Unsent(Writer):
    """Without anything that carries records."""

    def _open(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> Directory:
        return Directory(Servers(("http://a:1",)))


def test_should_refuse_a_name_that_no_topic_can_have_before_metadata_is_asked_for() -> None:
    writer = Unsent()
    assert writer._known_route("my-topic") is None
    with pytest.raises(LocalError, match=r"cannot name a topic, .*; try my-topic"):
        writer._known_route("my_topic")


@pytest.mark.parametrize(
    ("options", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "all", "enable_idempotence": True}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": 1}, False),
        ({"acks": "0", "enable_idempotence": False}, False),
    ],
)
def test_should_be_idempotent_by_default_where_it_waits_for_all(options: dict[str, Any], is_idempotent: bool) -> None:
    assert Unsent(**options)._options.is_idempotent is is_idempotent


def test_should_refuse_to_be_idempotent_when_it_does_not_wait_for_all() -> None:
    with pytest.raises(ValueError, match=r"enable_idempotence=True needs acks='all', acks is '1': .* leave one"):
        Unsent(acks=1, enable_idempotence=True)


MIB = 1 << 20


def partitioning(partitions: int = 6, partitioner: Partitioner | None = None) -> Partitioning:
    return Partitioning("flights", partitions, partitioner, start=0)


def test_should_put_a_key_where_kafka_puts_it() -> None:
    for key in (b"N14228", b"", b"21", "ü".encode()):
        assert partitioning().choose(key, b"v", 100) == partition_for_key(key, 6)


def test_should_stay_and_then_go_on_when_records_have_no_key() -> None:
    choose = partitioning(3)
    half = STICKY_BYTES // 2
    assert [choose.choose(None, b"v", half) for _ in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]


def test_should_ask_the_users_function_first() -> None:
    by_length = partitioning(partitioner=lambda topic, key, value, n: len(value or b"") % n)
    assert by_length.choose(b"key", b"12345678", 8) == 2
    records = batch_columns(["a", "bb", "ccc"], ["k", None, "k"], None, 0)
    divided = [(p, part.column("value").to_pylist()) for p, part, _ in by_length.divide(records, None, MIB)]
    assert divided == [(1, [b"a"]), (2, [b"bb"]), (3, [b"ccc"])]


@pytest.mark.parametrize("answer", [6, -1, "0", None, 1.5])
def test_should_refuse_what_the_users_function_gives_when_it_is_no_partition(answer: Any) -> None:
    with pytest.raises(LocalError, match=r"the partitioner gave .* from 0 to 5"):
        partitioning(partitioner=lambda *_: answer).choose(None, b"v", 1)


def test_should_name_the_range_when_a_partition_is_not_there() -> None:
    with pytest.raises(UnknownPartitionError, match="partition 6 of flights does not exist: it has 6, numbered from 0"):
        partitioning().check(6)
    assert partitioning().check(5) == 5


@pytest.mark.parametrize("given", ["1", 1.0, None])
def test_should_say_so_when_a_partition_is_no_number(given: Any) -> None:
    with pytest.raises(TypeError, match=r"partition is \w+, not int: give its number, or leave it out"):
        partitioning().check(given)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1, max_size=60), st.integers(1, 7))
def test_should_divide_columns_as_it_chooses_for_rows(keys: list[bytes | None], partitions: int) -> None:
    choose = partitioning(partitions)
    records = batch_columns([str(i) for i in range(len(keys))], keys, None, 0)
    placed = {
        value: partition
        for partition, part, _ in choose.divide(records, None, MIB)
        for value in part.column("value").to_pylist()
    }
    assert len(placed) == len(keys)
    for number, key in enumerate(keys):
        if key is not None:
            assert placed[str(number).encode()] == partition_for_key(key, partitions)


def test_should_put_all_columns_into_the_partition_that_is_given() -> None:
    records = batch_columns(["a", "b"], ["k1", "k2"], None, 0)
    assert [(p, part.num_rows) for p, part, _ in partitioning().divide(records, 4, MIB)] == [(4, 2)]
    with pytest.raises(UnknownPartitionError):
        list(partitioning().divide(records, 9, MIB))


def test_should_spread_batches_without_keys_over_all_partitions() -> None:
    records = batch_columns([b"x" * 1000] * 1_000, None, None, 0)
    used = [p for p, _, _ in partitioning().divide(records, None, 100_000)]
    assert used == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4][: len(used)]
    assert len(used) >= 10


def test_should_keep_records_without_a_key_in_their_place_among_others() -> None:
    records = batch_columns(["a", "b", "c", "d"], [None, "k", None, "k"], None, 0)
    ((partition, part, _),) = partitioning(1).divide(records, None, MIB)
    assert (partition, part.column("value").to_pylist()) == (0, [b"a", b"b", b"c", b"d"])


def test_should_spread_records_without_a_key_among_others_over_all_partitions() -> None:
    count = 8 * STICKY_BYTES // 1000
    records = batch_columns([b"x" * 1000] * count, ["k", *[None] * (count - 1)], None, 0)
    rows = {p: part.num_rows for p, part, _ in partitioning(4).divide(records, None, 100 * MIB)}
    assert sorted(rows) == [0, 1, 2, 3]
    assert max(rows.values()) <= 3 * STICKY_BYTES // 1000
