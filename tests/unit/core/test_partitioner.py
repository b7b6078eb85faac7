"""murmur2 with Kafka's own golden values, its columnar form against the scalar one, and keyless records."""

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.murmur2 import murmur2, partition_for_key
from headrace.core.partitioner import NO_KEY, StickyRoundRobin, partitions_for_keys

KAFKAS_VALUES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), KAFKAS_VALUES)
def test_should_hash_as_kafka_does(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_should_take_the_positive_hash_modulo_the_partitions() -> None:
    assert partition_for_key(b"21", 6) == (-973932308 & 0x7FFFFFFF) % 6


def test_should_hash_columns_as_kafka_does() -> None:
    keys = [key for key, _ in KAFKAS_VALUES]
    expected = [(value & 0x7FFFFFFF) % 1009 for _, value in KAFKAS_VALUES]
    assert partitions_for_keys(pa.array(keys), 1009).tolist() == expected


@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=60),
    partition_count=st.integers(1, 1024),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_should_agree_with_the_scalar_hash_when_keys_are_a_column(
    keys: list[bytes | None], partition_count: int, kind: pa.DataType, bounds: tuple[int, int]
) -> None:
    start, end = min(bounds), max(bounds)
    expected = [NO_KEY if key is None else partition_for_key(key, partition_count) for key in keys[start:end]]
    assert partitions_for_keys(pa.array(keys, kind)[start:end], partition_count).tolist() == expected


def test_should_tell_records_without_a_key_from_those_with_one() -> None:
    keys = pa.array([b"x", None, b"21", b"", None])
    expected = [NO_KEY, partition_for_key(b"21", 6), partition_for_key(b"", 6), NO_KEY]
    assert partitions_for_keys(keys[1:], 6).tolist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_should_hash_text_by_its_utf8(kind: pa.DataType) -> None:
    names = ["N14228", "Zürich", ""]
    expected = [partition_for_key(name.encode(), 7) for name in names]
    assert partitions_for_keys(pa.array(names, kind), 7).tolist() == expected


def test_should_hash_all_blocks_when_a_column_is_long_and_chunked() -> None:
    keys = [b"key-%d" % number for number in range(40_000)]
    column = pa.chunked_array([pa.array(keys[:17]), pa.array(keys[17:])])
    assert partitions_for_keys(column, 12).tolist() == [partition_for_key(key, 12) for key in keys]


def test_should_hash_a_single_huge_key_among_small_ones() -> None:
    keys = [b"a", b"x" * 100_003, b"bcdef"] * 2
    assert partitions_for_keys(pa.array(keys), 5).tolist() == [partition_for_key(key, 5) for key in keys]


def test_should_have_no_partitions_when_there_are_no_keys() -> None:
    assert partitions_for_keys(pa.array([], pa.binary()), 3).tolist() == []
    assert partitions_for_keys(pa.nulls(2, pa.binary()), 3).tolist() == [NO_KEY, NO_KEY]


def test_should_refuse_keys_that_are_neither_bytes_nor_text() -> None:
    with pytest.raises(TypeError, match="column of int64"):
        partitions_for_keys(pa.array([1, 2]), 3)


def test_should_stay_with_a_partition_until_enough_bytes_went_there() -> None:
    partitioner = StickyRoundRobin(3, sticky_bytes=100, start=4)
    chosen = [partitioner.partition_for(40) for _ in range(9)]
    assert chosen == [1, 1, 1, 2, 2, 2, 0, 0, 0]


def test_should_go_round_when_nothing_sticks() -> None:
    partitioner = StickyRoundRobin(3, sticky_bytes=0)
    assert [partitioner.partition_for(0) for _ in range(5)] == [0, 1, 2, 0, 1]


@given(partition_count=st.integers(1, 9), sizes=st.lists(st.integers(0, 50), min_size=1, max_size=80))
def test_should_fill_each_run_to_its_bytes(partition_count: int, sizes: list[int]) -> None:
    partitioner = StickyRoundRobin(partition_count, sticky_bytes=60)
    chosen = [(partitioner.partition_for(size), size) for size in sizes]
    runs = [sum(size for _, size in run) for _, run in groupby(chosen, key=lambda pair: pair[0])]
    assert all(total >= 60 for total in runs[:-1])
