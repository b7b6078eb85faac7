"""What tasks read, cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.offsets import OffsetRange, SourcePartition, split_ranges

_LONG, _SHORT = SourcePartition("flights", "u", 0), SourcePartition("flights", "u", 1)


def test_should_leave_out_what_is_empty() -> None:
    assert split_ranges([OffsetRange(_LONG, 5, 5), OffsetRange(_SHORT, 7, 3)]) == []


def test_should_give_more_tasks_to_the_longer_one_when_there_are_to_be_more() -> None:
    cut = split_ranges([OffsetRange(_LONG, 0, 90), OffsetRange(_SHORT, 10, 40)], min_partitions=4)
    assert [(each.partition.number, each.start, each.end) for each in cut] == [
        (0, 0, 30),
        (0, 30, 60),
        (0, 60, 90),
        (1, 10, 40),
    ]


def test_should_cut_evenly_when_tasks_are_to_be_small() -> None:
    assert [each.size for each in split_ranges([OffsetRange(_LONG, 0, 10)], max_records=4)] == [3, 3, 4]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 5000),
)
def test_should_cover_all_once(bounds: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    if most is not None:
        bounds = [(start, min(size, most * 20)) for start, size in bounds]
    ranges = [OffsetRange(SourcePartition("t", "u", number), at, at + size) for number, (at, size) in enumerate(bounds)]
    cut = split_ranges(ranges, min_partitions=least, max_records=most)
    for whole in ranges:
        pieces = [each for each in cut if each.partition == whole.partition]
        ends = [whole.start, *(each.end for each in pieces)]
        assert [each.start for each in pieces] == ends[:-1]
        assert ends[-1] == whole.end or not pieces
        assert sum(each.size for each in pieces) == whole.size
    assert most is None or all(0 < each.size <= most for each in cut)
    assert least is None or len(cut) >= min(least, sum(each.size for each in ranges))
